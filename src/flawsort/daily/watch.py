"""Sorts the images of a folder as they arrive. It can be ended at any time, and goes on later."""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from flawsort.clusters.assign import NORMAL, UNSEEN
from flawsort.core.errors import FlawsortError, OptionError
from flawsort.core.records import ImageSet, Ints, SetAside
from flawsort.core.storage import append
from flawsort.core.tables import Table, as_rows
from flawsort.core.text import is_device, printable
from flawsort.daily.delivery import Actions, Deliverer
from flawsort.daily.events import (
    ASIDE,
    Condition,
    Event,
    image_events,
    numbered,
    rise_events,
)
from flawsort.daily.incoming import Arrived, Incoming, hashed
from flawsort.daily.journal import Addition, Journal, Round
from flawsort.daily.outputs import added, check_outputs, without_left_out
from flawsort.daily.sorter import Seen, Sorted, Sorter
from flawsort.images.inputs import notes_on_files
from flawsort.images.lookup import Lookup
from flawsort.labels.newcomers import sort_kept
from flawsort.labels.state import State
from flawsort.runs.assigned import ASSIGNED, files_of, open_kept
from flawsort.runs.growing import PART_IMAGES, grow
from flawsort.runs.pictures import Sides
from flawsort.runs.preview import SHOWN_IMAGES
from flawsort.runs.tables import NEW_KIND_TITLE, NORMAL_TITLE
from flawsort.runs.trends import SPANS, UNKNOWN, has_dates, periods, read_periods

# Images that are sorted at a time: a batch of the backbones. More take more memory.
ROUND = 64
# Images are compared as if there were so many, however many come at a time: with the arithmetic
# for many, so that the score of an image does not depend on what comes with it.
AS_ONE_OF = 4096
# The pictures of an image take about 25 KB with this long side.
SIDES = Sides((), 192)
# A look takes at most this share of the time, however many files the folders hold.
LOOKING = 0.2
# So many batches are counted again after people have taught something, the last ones.
COUNTED_AGAIN = 31
# Seconds between two such counts: people give an answer every few seconds.
COUNT_EVERY = 60.0
# How a name of a batch may not look.
_ODD = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Wishes:
    """What is done with new images.

    by: count them by "day", "week", "month", "folder" or a CSV of lots. keep: the run keeps a batch
    for each of these, or None. outputs: files that grow. conditions: which events are passed on.
    actions: to whom. every: seconds between two looks at the folders.
    """

    by: str = "day"
    keep: str | None = "day"
    outputs: tuple[Path, ...] = ()
    conditions: tuple[Condition, ...] = ()
    actions: Actions = field(default_factory=Actions)
    every: float = 1.0

    def __post_init__(self) -> None:
        if bool(self.conditions) != bool(self.actions.names):
            raise OptionError(
                "--on says which events are passed on, and --exec or --post to whom. Give both, or "
                "neither."
            )
        for span, parameter in ((self.by, "by"), (self.keep, "keep")):
            if span is not None and span not in SPANS:
                _lots(Path(span), parameter)

    @property
    def by_arrival(self) -> bool:
        """Whether a period is later than another one if it came later. The names of days, weeks and
        months say that themselves; lots and folders are called anything."""
        return self.by == "folder" or (
            self.by not in SPANS and not has_dates(_lots(Path(self.by), "by"))
        )


@dataclass(frozen=True)
class Told:
    """What a round was about. counts: images by the title of their group. set_aside: with
    reasons."""

    counts: Counter[str]
    set_aside: tuple[SetAside, ...]
    rises: tuple[Event, ...] = ()

    @property
    def n_images(self) -> int:
        return self.counts.total()


class _Wait(Exception):  # noqa: N818
    """A file cannot be read or written now: somebody is saving it, or has it open on Windows."""


class Watch:
    """Watches folders for a run. tell: called after each round. say: gets sentences about what went
    wrong. pause: waits so many seconds."""

    def __init__(
        self,
        sorter: Sorter,
        journal: Journal,
        incoming: Incoming,
        wishes: Wishes,
        *,
        tell: Callable[[Told], None],
        say: Callable[[str], None],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sorter, self._journal, self._incoming = sorter, journal, incoming
        self._wishes, self._tell, self._say, self._pause = wishes, tell, say, pause
        self._outputs = tuple(path.absolute() for path in wishes.outputs)
        self._by_arrival = wishes.by_arrival
        self._deliverer = Deliverer(journal, wishes.actions, say)
        self._counted_at = -COUNT_EVERY
        # What was said last of files that have to be waited for.
        self._waiting = ""
        check_outputs(self._outputs)
        with suppress(_Wait):
            self._finish()

    def run_once(self, settle: float) -> None:
        """Sort what is there and complete, pass on what is due, and end. settle: seconds between
        two looks; a file that changes meanwhile is left for the next time."""
        self._incoming.look()
        self._pause(settle)
        self._sort_all(self._incoming.look())
        self._say_problems()
        while self._deliverer.deliver():
            pass

    def run(self) -> None:
        """Sort what arrives, until this is interrupted."""
        while True:
            start = time.monotonic()
            ready = self._incoming.look()
            took = time.monotonic() - start
            self._say_problems()
            self._sort_all(ready)
            self._deliverer.deliver()
            self._pause(max(self._wishes.every, took * (1 / LOOKING - 1)))

    def _sort_all(self, ready: Sequence[Arrived]) -> None:
        try:
            self._finish()
            for start in range(0, len(ready), ROUND):
                self._round(ready[start : start + ROUND])
                self._deliverer.deliver()
        except _Wait as error:
            if str(error) != self._waiting:
                self._say(f"Waiting for {error}")
            self._waiting = str(error)
        else:
            self._waiting = ""

    def _say_problems(self) -> None:
        for problem in self._incoming.problems():
            self._say(f"Not looked at: {problem}")
        skipped = self._incoming.skipped()
        if skipped:
            self._say(skipped)

    def _round(self, ready: Sequence[Arrived]) -> None:
        """Sort some files, write that into the journal, and carry it out."""
        images, good, bad = hashed(ready)
        state = self._sorter.refresh()
        aside = list(zip(bad, images.set_aside, strict=True))
        seen = Seen()
        found, failed = self._sorter.try_sort(
            replace(images, set_aside=()),
            keep_vectors=self._wishes.keep is not None,
            as_one_of=AS_ONE_OF,
            on_regions=seen,
        )
        of_name = {one.name: one for one in good}
        aside += [(of_name[entry.name], entry) for entry in failed]
        aside = [(one, replace(entry, reason=printable(entry.reason))) for one, entry in aside]
        number = self._journal.next_number
        done = Round(number)
        done.files = [(one, "", entry.reason) for one, entry in aside]
        events: list[Event] = []
        counts: Counter[str] = Counter()
        table: Table | None = None
        if found is not None:
            when = self._when(found.images, self._wishes.by)
            table, _ = self._sorter.table(found, when)
            digest_of = dict(zip(found.images.names, found.images.digests, strict=True))
            done.files += [(of_name[name], digest, "") for name, digest in digest_of.items()]
            done.counts.update(zip(when, found.newcomers.groups.tolist(), strict=True))
            done.additions = self._additions(found, table)
            counts.update(found.newcomers.titles)
            also = self._sorter.other_kinds(found, seen)
            events += image_events(as_rows(without_left_out(table)), also)
        if not done.files:  # all have changed since
            return
        events += [
            {
                "event": ASIDE,
                "name": entry.name,
                "path": printable(one.path),
                "reason": entry.reason,
            }
            for one, entry in aside
        ]
        rises = self._rises(state, done)
        self._note(done, [*events, *rises], table)
        self._journal.commit(done)
        self._tell(Told(counts, tuple(entry for _, entry in aside), tuple(rises)))
        for note in [] if found is None else notes_on_files(found.images):
            self._say(note)
        self._finish()

    def _note(self, done: Round, events: Sequence[Event], table: Table | None) -> None:
        """Add to a round what its events add to files, and which of them are passed on."""
        told = numbered(events, done.number, datetime.now(UTC).isoformat(timespec="seconds"))
        for path in self._outputs:
            content = added(path, table, told)
            if content:
                done.appends.append((path, content))
        conditions, names = self._wishes.conditions, self._wishes.actions.names
        heard = [one for one in told if any(condition.holds(one) for condition in conditions)]
        done.events = [(name, one) for one in heard for name in names]

    def _when(self, images: ImageSet, by: str) -> list[str]:
        if by in SPANS:
            return periods(images.names, images.sources, by)
        try:
            table = _lots(Path(by), "by")
        except FlawsortError as error:  # somebody is writing it, perhaps
            raise _Wait(f"the table of lots: {error}") from error
        return [lot or UNKNOWN for lot in table.values_of(images.names, images.sources)]

    def _additions(self, found: Sorted, table: Table) -> list[Addition]:
        """What the batches of the run get."""
        keep = self._wishes.keep
        if keep is None:
            return []
        when = self._when(found.images, keep)
        made: list[Addition] = []
        for period in dict.fromkeys(when):
            rows = np.flatnonzero(np.array(when) == period)
            made.append(self._addition(found, table, period, rows, [one.name for one in made]))
        return made

    def _addition(
        self, found: Sorted, table: Table, period: str, rows: Ints, others: Sequence[str]
    ) -> Addition:
        """others: the names of batches that this round makes, too."""
        name, n_before = self._journal.kept_for(period) or (self._new_name(period, others), 0)
        own = Sorted(
            found.images.take(rows),
            found.found.take(rows),
            found.scores[rows],
            found.newcomers,
        )
        shown = min(len(rows), max(0, SHOWN_IMAGES - n_before))
        columns = {column: [values[row] for row in rows] for column, values in table.items()}
        columns["proposal"] = [-1] * len(rows)
        kept = self._sorter.kept(own, name, columns, self._wishes.by, np.arange(shown), sides=SIDES)
        vectors = None if kept.vectors is None else kept.vectors[:shown]
        files = files_of(replace(kept, vectors=vectors))
        return Addition(period, name, n_before // PART_IMAGES + 1, len(rows), files)

    def _new_name(self, period: str, others: Sequence[str]) -> str:
        """A name for the batch of a period that no other batch has, also where case is ignored."""
        plain = _ODD.sub("-", period).strip("-.")[:60]
        plain = f"lot-{plain}" if is_device(plain) else plain
        if plain != period:  # others may become the same
            plain = f"{plain or 'lot'}-{hashlib.sha256(period.encode()).hexdigest()[:6]}"
        names = (plain if number == 1 else f"{plain}.{number}" for number in range(1, 10**6))
        taken = {name.casefold() for name in (*self._journal.kept_names(), *others)}
        folder = self._sorter.folder / ASSIGNED
        return next(
            name for name in names if name.casefold() not in taken and not (folder / name).exists()
        )

    def _rises(self, state: State, done: Round) -> list[Event]:
        """The groups that rise with this round, each once a period."""
        self._count_again(state)
        # In the order in which they came.
        now = Counter({(period, group): n for period, group, n in self._journal.counts()})
        now.update(done.counts)
        titles = {
            **{group.id: group.title for group in state.labelling.groups.values()},
            UNSEEN: NEW_KIND_TITLE,
            NORMAL: NORMAL_TITLE,
        }
        told = self._journal.risen()
        found = rise_events(
            [(*key, n) for key, n in now.items()],
            titles,
            normal=[NORMAL, *state.labelling.with_role("normal")],
            by_arrival=self._by_arrival,
        )
        new = [(one, event) for one, event in found if (one.period, one.group) not in told]
        done.risen = [(one.period, one.group) for one, _ in new]
        return [event for _, event in new]

    def _count_again(self, state: State) -> None:
        """After people have taught something, count as the groups are now: otherwise a new name
        would look like a rise."""
        journal, now = self._journal, time.monotonic()
        if journal.fact("counted") == state.version or now - self._counted_at < COUNT_EVERY:
            return
        self._counted_at = now
        counts: Counter[tuple[str, int]] = Counter()
        for name in journal.kept_names()[-COUNTED_AGAIN:]:
            try:
                kept = open_kept(self._sorter.folder, name)
            except FlawsortError:  # somebody has removed or damaged it
                continue
            groups = sort_kept(kept, self._sorter.run, state).groups.tolist()
            counts.update(zip(kept.table["period"], groups, strict=True))
        journal.count_again(counts, state.version)

    def _finish(self) -> None:
        """Carry out what the journal has of the last round. Each step may be repeated."""
        journal = self._journal
        number = journal.fact("round")
        for path, begin, content in journal.to_append():
            if path not in self._outputs:  # a journal may come from anybody
                raise OptionError(
                    f"The last round was interrupted before all of it was in '{path}'. Name this "
                    "file with -o once more."
                )
            with _or_wait():
                append(path, content, begin)
        for name, part, files in journal.to_keep():
            with _or_wait():
                grow(self._sorter.folder, name, part, number, files)
        journal.carried_out()


@contextmanager
def _or_wait() -> Iterator[None]:
    """A file that somebody has open on Windows, such as the CSV in a spreadsheet, is waited for."""
    try:
        yield
    except (PermissionError, OptionError) as error:
        refused = error if isinstance(error, PermissionError) else error.__cause__
        if not isinstance(refused, PermissionError):
            raise
        place = refused.filename or refused.filename2
        raise _Wait(f"'{place}': {refused.strerror}. Is it open in another program?") from error


def _lots(path: Path, parameter: str) -> Lookup:
    if not path.is_file():
        raise OptionError(
            f"must be {', '.join(SPANS)} or a CSV file that exists. Got '{path}'.",
            parameter=parameter,
        )
    return read_periods(path)
