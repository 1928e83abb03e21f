"""The images of a run and of the batches that it keeps, by period: which kinds come most often,
which are new, which rise."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.assign import UNSEEN
from flawsort.core.errors import FlawsortError, first_line
from flawsort.core.text import clean
from flawsort.labels.newcomers import sort_kept
from flawsort.labels.state import State
from flawsort.runs.assigned import Kept, kept_names, open_kept
from flawsort.runs.run import Run
from flawsort.runs.trends import SPANS, UNKNOWN, Counts, Increase, counts, in_order, periods, rises

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class Arrivals:
    """The images of a run, and the new ones of the batches that it keeps.

    groups: (n,), ids of groups; negative for those of no group. periods, lots: of each image; lots
    is None if nobody asked for them. by: what makes a period. n_run: images of the run; the others
    are of batches. notes: batches that were left out, with the reasons.
    """

    groups: NDArray[np.int64]
    periods: tuple[str, ...]
    lots: tuple[str, ...] | None
    by: str
    n_run: int
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> Counts:
        return counts(self.groups, self.periods)

    @property
    def known_periods(self) -> list[str]:
        """In natural order, without "unknown"."""
        return [period for period in in_order(self.periods) if period != UNKNOWN]


@dataclass(frozen=True)
class Kind:
    """A kind of flaw in a Pareto. count: its images in the period. share: of the images with a
    flaw. sum: of the shares down to this kind. before: its images in the period before, None if
    there is none. new: it has no image in earlier periods. rise: if it is significant. lots: its
    images by lot."""

    group: int
    count: int
    share: float
    sum: float
    before: int | None
    new: bool
    rise: Increase | None
    lots: Mapping[str, int]


@dataclass(frozen=True)
class Pareto:
    """The kinds of flaws of one period, the most frequent first. period: "" for all images, if no
    period is known. n: images of the period. lots: in natural order."""

    period: str
    n: int
    kinds: tuple[Kind, ...]
    lots: tuple[str, ...]

    @property
    def n_flawed(self) -> int:
        return sum(kind.count for kind in self.kinds)


def gather_arrivals(
    run: Run, state: State, folder: Path, by: str | Path, lots: str | Path | None = None
) -> Arrivals:
    """The images of a run and of its batches, by the current groups. An image of a batch that was
    there before does not count again. folder: of the run. by, lots: as `by` of `periods`."""
    batches, notes = _batches(run, state, folder)
    names, paths = list(run.names), list(run.table["path"])
    groups, seen = state.suggestions.groups.tolist(), set(run.table["sha256"])
    stored: list[str | None] = [None] * len(names)
    for kept, found in batches:
        for row, digest in enumerate(kept.table["sha256"]):
            if digest in seen:
                continue
            seen.add(digest)
            names.append(kept.table["name"][row])
            paths.append(kept.table["path"][row])
            groups.append(int(found[row]))
            stored.append(_again(kept.table["period"][row], kept, by))
    when = [
        known or period for known, period in zip(stored, periods(names, paths, by), strict=True)
    ]
    where = _lots_of(names, paths, lots)
    return Arrivals(
        np.array(groups, np.int64),
        tuple(map(clean, when)),
        where,
        str(by) if by in SPANS else "lot",
        len(run),
        tuple(notes),
    )


def _lots_of(
    names: Sequence[str], paths: Sequence[str], lots: str | Path | None
) -> tuple[str, ...] | None:
    if lots is None:
        return None
    return tuple(map(clean, periods(names, paths, lots, parameter="lots")))


def pareto_of(arrivals: Arrivals, flaws: Sequence[int]) -> Pareto:
    """The Pareto of the last period. flaws: ids of the groups that are kinds of flaws; images of
    new kinds count, too."""
    known = arrivals.known_periods
    period = known[-1] if known else ""
    of_flaws = {*flaws, UNSEEN}
    rows = [row for row, one in enumerate(arrivals.periods) if one == period or not known]
    now = Counter(int(arrivals.groups[row]) for row in rows)
    earlier = {
        int(group)
        for group, one in zip(arrivals.groups, arrivals.periods, strict=True)
        if one in known[:-1]
    }
    risen = {rise.group: rise for rise in rises(arrivals.counts)}
    total = sum(count for group, count in now.items() if group in of_flaws)
    before = _before(arrivals, known)
    lots = arrivals.lots or ("",) * len(arrivals.groups)
    ranked = sorted((group for group in now if group in of_flaws), key=lambda g: (-now[g], g))
    kinds, so_far = [], 0
    for group in ranked:
        so_far += now[group]
        kinds.append(
            Kind(
                group,
                now[group],
                now[group] / total,
                so_far / total,
                None if before is None else before[group],
                len(known) > 1 and group not in earlier,
                risen.get(group),
                Counter(lots[row] for row in rows if arrivals.groups[row] == group),
            )
        )
    shown = {lots[row] for row in rows if int(arrivals.groups[row]) in of_flaws}
    return Pareto(period, len(rows), tuple(kinds), tuple(in_order(shown)) if arrivals.lots else ())


def _before(arrivals: Arrivals, known: Sequence[str]) -> Counter[int] | None:
    """The images of each group in the last period but one."""
    if len(known) < 2:
        return None
    return Counter(
        int(group)
        for group, one in zip(arrivals.groups, arrivals.periods, strict=True)
        if one == known[-2]
    )


def _batches(
    run: Run, state: State, folder: Path
) -> tuple[list[tuple[Kept, NDArray[np.int64]]], list[str]]:
    """The batches that a run keeps, with the current groups of their images, and notes on those
    that cannot be read."""
    found, notes = [], []
    for name in kept_names(folder):
        try:
            kept = open_kept(folder, name)
            found.append((kept, sort_kept(kept, run, state).groups))
        except (FlawsortError, KeyError, ValueError, IndexError) as error:
            notes.append(f"The batch {name} is left out: {first_line(error)}.")
    return found, notes


def _again(period: str, kept: Kept, by: str | Path) -> str | None:
    """The period that an image was counted in when it came; None if that was another kind of
    period. Its file may be gone by now, or may have been copied."""
    if period == UNKNOWN:
        return None
    if str(kept.about.get("by")) == str(by):
        return period
    if by not in ("day", "week", "month") or not _DAY.fullmatch(period):
        return None
    try:
        year, week, _ = date.fromisoformat(period).isocalendar()
    except ValueError:  # the batch may come from anybody
        return None
    return {"day": period, "week": f"{year}-W{week:02d}", "month": period[:7]}[str(by)]
