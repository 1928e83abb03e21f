"""What people made of a run: the groups as they left them, how right these are as far as answers
show it, and when and in which lots the kinds came. A part of the report, and a page to print."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from flawsort._version import __version__
from flawsort.clusters.assign import NORMAL, UNSEEN
from flawsort.core.text import clean, pluralise
from flawsort.images.originals import kept_picture
from flawsort.labels.accuracy import (
    LEAST_ANSWERS,
    Estimate,
    audited,
    audited_groups,
    suggestions_were_right,
)
from flawsort.labels.groups import NO_GROUP, SEVERITY_TITLES, SHAPES
from flawsort.labels.regions import settled_regions
from flawsort.labels.session import Session
from flawsort.labels.state import State
from flawsort.outputs.charts import chart_panels
from flawsort.outputs.exports.content import Content, gather_content
from flawsort.outputs.exports.examples import choose
from flawsort.outputs.report.arrivals import Arrivals, Pareto, gather_arrivals, pareto_of
from flawsort.runs.run import Run
from flawsort.runs.tables import NEW_KIND_TITLE, NORMAL_TITLE
from flawsort.runs.trends import UNKNOWN

PERIOD = "week"
"""What images are counted by, unless people choose."""

ROLES = {"flaw": "kind of flaw", "unsure": "unsure", "normal": "no flaw"}
# Small pictures of each group: enough to recognise it, in a page of a few hundred kilobytes.
PICTURES, SIDE, QUALITY = 5, 128, 80
# Lots beside each other; more columns do not fit a page.
LOTS_SHOWN = 10


@dataclass(frozen=True, eq=False)
class Reviewed:
    """A run as people left it.

    content: its groups, every image where it is decided or suggested to be. n_edits: those that
    were made, 0 if nobody has reviewed the run. suggestions, audit: how right they were; None below
    LEAST_ANSWERS. of_groups: by id, the audited images shown in the group, and how often that was
    right. n_audited: random images that were answered for. arrivals: when the images came.
    """

    content: Content
    n_edits: int
    suggestions: Estimate | None
    audit: Estimate | None
    n_audited: int
    of_groups: dict[int, tuple[int, Estimate | None]]
    arrivals: Arrivals


def read_reviewed(
    folder: Path,
    run: Run,
    *,
    by: str | Path = PERIOD,
    lots: str | Path | None = None,
    always: bool = False,
) -> Reviewed | None:
    """What people made of a run, None if that is nothing. by, lots: what makes a period and a lot,
    as `by` of `periods`. always: also if nobody has edited the run."""
    with Session(folder, run) as session:
        if not (always or session.state.edited):
            return None
        return gather_reviewed(run, session.state, folder, by, lots)


def gather_reviewed(
    run: Run,
    state: State,
    folder: Path,
    by: str | Path = PERIOD,
    lots: str | Path | None = None,
) -> Reviewed:
    """What people made of a run, at a state of its review. by, lots: as for `read_reviewed`."""
    labelling, space = state.labelling, state.space()
    content = gather_content(
        run,
        state.settled,
        probability=state.suggestions.probability,
        regions=settled_regions(run, state),
    )
    return Reviewed(
        content,
        state.version if state.edited else 0,
        suggestions_were_right(labelling),
        audited(labelling, space),
        len(labelling.audits),
        audited_groups(labelling, space, state.suggestions.groups),
        gather_arrivals(run, state, folder, by, lots),
    )


def render_sections(reviewed: Reviewed) -> str:
    """What people made of a run as parts of a page, without scripts."""
    return _template("reviewed.html").render(**_facts(reviewed))


def render_printed(reviewed: Reviewed) -> str:
    """The same as a page of its own, to print. The same content gives the same text."""
    run = reviewed.content.run
    backbones = [run.manifest["backbone"], *run.manifest.get("beside", [])]
    return _template("printed.html").render(
        style=Markup(_source("style.css") + style()),
        sections=Markup(render_sections(reviewed)),
        n=len(run),
        n_groups=len(set(reviewed.content.labelling.labels.tolist())),
        known=reviewed.arrivals.known_periods,
        by=reviewed.arrivals.by,
        backbones=", ".join(clean(one["name"]) for one in backbones if one),
        mode=clean(run.mode),
        version=__version__,
    )


def style() -> str:
    """The style of these parts, beside that of the report."""
    return _source("reviewed.css")


def _facts(reviewed: Reviewed) -> dict[str, Any]:
    content, arrivals = reviewed.content, reviewed.arrivals
    titles = {**content.titles, UNSEEN: NEW_KIND_TITLE, NORMAL: NORMAL_TITLE}
    flaws = [group.id for group in content.groups if group.role == "flaw"]
    pareto = pareto_of(arrivals, flaws)
    return {
        "rows": _group_rows(reviewed),
        "severe": SEVERITY_TITLES,
        "roles": ROLES,
        "n": len(content.run),
        "decided": content.n_decided,
        "edits": reviewed.n_edits,
        "suggestions": reviewed.suggestions,
        "audit": reviewed.audit,
        "n_answers": len(content.labelling.answers),
        "n_audited": reviewed.n_audited,
        "least": LEAST_ANSWERS,
        "by": arrivals.by,
        "known": arrivals.known_periods,
        "n_new": len(arrivals.groups) - arrivals.n_run,
        "compared": any(kind.new or kind.rise for kind in pareto.kinds),
        "notes": [clean(note) for note in arrivals.notes],
        "pareto": pareto,
        "kinds": [{"kind": kind, **_look(content, kind.group, titles)} for kind in pareto.kinds],
        "lots": _lots_shown(pareto),
        "panels": [Markup(panel) for panel in _trend(arrivals, titles)],
    }


def _group_rows(reviewed: Reviewed) -> list[dict[str, Any]]:
    """The groups: flaws first, then unsure, then normal; the largest first."""
    content = reviewed.content
    sizes = {group.id: len(content.labelling.members(group.id)) for group in content.groups}
    roles = list(ROLES)
    chosen = choose(content, PICTURES)
    others = [group for kinds in content.kinds for group in kinds[1:]]
    rows = []
    for group in sorted(content.groups, key=lambda g: (roles.index(g.role), -sizes[g.id], g.id)):
        members = content.labelling.members(group.id)
        typical = chosen[group.id].typical if group.id in chosen else ()
        n_audited, right = reviewed.of_groups.get(group.id, (0, None))
        rows.append(
            {
                "title": content.titles[group.id],
                "role": group.role,
                "severity": group.severity,
                "note": clean(group.note),
                "colour": group.colour,
                "shape": group.shape,
                "n": len(members),
                "share": len(members) / len(content.run),
                "also": others.count(group.id),
                "decided": sum(map(content.decided, members.tolist())),
                "n_audited": n_audited,
                "right": right,
                "pictures": _pictures(content.run, typical),
            }
        )
    return rows


def _look(content: Content, group: int, titles: dict[int, str]) -> dict[str, str]:
    """The title, severity, colour and shape of a group, or of no group."""
    known = content.labelling.groups.get(group)
    return {
        "title": titles[group],
        "severity": known.severity if known else "",
        "colour": known.colour if known else NO_GROUP,
        "shape": known.shape if known else SHAPES[0],
    }


def _lots_shown(pareto: Pareto) -> Sequence[str]:
    """The lots with the most images of flaws, in natural order; none if no lot is known."""
    totals = {lot: sum(kind.lots.get(lot, 0) for kind in pareto.kinds) for lot in pareto.lots}
    most = sorted(pareto.lots, key=lambda lot: -totals[lot])[:LOTS_SHOWN]
    return [] if most == [UNKNOWN] else [lot for lot in pareto.lots if lot in most]


def _trend(arrivals: Arrivals, titles: dict[int, str]) -> list[str]:
    """A chart for each group; none for a single period, which shows no trend."""
    return chart_panels(arrivals.counts, titles) if len(arrivals.known_periods) > 1 else []


def _pictures(run: Run, rows: Sequence[int]) -> list[tuple[str, str]]:
    """Small pictures of images that have a thumbnail, as data URLs, with the names."""
    found = []
    for row in rows:
        if not run.thumbnails[row]:
            continue
        image = kept_picture(run.thumbnails[row])
        image.thumbnail((SIDE, SIDE))
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=QUALITY)
        data = base64.b64encode(stream.getvalue()).decode()
        found.append((f"data:image/jpeg;base64,{data}", clean(run.names[row])))
    return found


def _template(name: str) -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["count"] = pluralise
    environment.filters |= {"percent": percent, "clean": clean}
    return environment.from_string(_source(name))


def percent(share: float) -> str:
    """A share for people: 0% and 100% are exactly that."""
    if 0 < share < 0.005:
        return "under 1%"
    return "over 99%" if 0.995 < share < 1 else f"{100 * share:.0f}%"


def _source(name: str) -> str:
    return files("flawsort.outputs.report").joinpath(name).read_text(encoding="utf-8")
