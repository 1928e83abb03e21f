"""A run in a notebook or a Python session: as a table, as groups, and as its report."""

from __future__ import annotations

import base64
import html as escaping
import sys
import tempfile
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import ImageSet, Ints
from flawsort.core.tables import make_frame
from flawsort.core.text import pluralise, printable
from flawsort.labels.groups import Group, Labelling, Role, Severity, first_labelling
from flawsort.labels.newcomers import Newcomers
from flawsort.labels.session import read_settled
from flawsort.labels.state import State
from flawsort.labels.suggestions import TeachingSpace, decided, image_groups
from flawsort.labels.tables import reviewed_groups
from flawsort.outputs.report import render_report
from flawsort.runs.folder import REPORT, read_text
from flawsort.runs.reviewed import reviewed_table
from flawsort.runs.run import Run, three_lines

TYPICAL = 6
SHOWN_GROUPS = 24
THUMBNAIL_HEIGHT = 72
REPORT_HEIGHT = 800


@dataclass(frozen=True)
class GroupSummary:
    """A group as people left it.

    number: its permanent id. name: "" until a person gives one. title: the name, or a title from
    the id. role: flaw, normal or unsure. severity: critical, major, minor or none, "" until a
    person says it. note: what people wrote about it. size: the number of images. decided: the
    number of images that a person has decided. typical: the names of the images nearest to its
    centre, nearest first.
    """

    number: int
    name: str
    title: str
    role: Role
    size: int
    decided: int
    typical: tuple[str, ...]
    severity: Severity = ""
    note: str = ""

    def __repr__(self) -> str:
        like = ", ".join(map(printable, self.typical[:3]))
        return f"<{self.title}: {pluralise(self.size, 'image')}, {self.role}, such as {like}>"


def state_of(run: Run) -> State:
    """The groups as people left them, and what the model suggests; as clustered if nobody has
    edited them."""
    if run.folder is not None:
        return read_settled(run.folder, run)
    first = first_labelling(run)
    return State(0, first, None, None, 0, False, lambda: TeachingSpace.of(run))


def labelling_of(run: Run) -> Labelling:
    """The groups, with every image where it is decided or suggested to be."""
    return state_of(run).settled


def frame(run: Run) -> Any:
    """One row per image, as a pandas DataFrame, or as a Frame if pandas is not installed: the name,
    the group as decided or suggested and what else people read of it, and the other columns of
    images.csv."""
    named = reviewed_groups(run, state_of(run))
    table = reviewed_table(run.table, named)
    return make_frame({"name": run.names, **named.columns(), **table})


def suggestions(run: Run) -> Any:
    """One row per image: name, group, probability and decided, as a pandas DataFrame, or as a Frame
    if pandas is not installed."""
    state = state_of(run)
    groups_now = image_groups(state.labelling, state.suggestions)
    return make_frame({"name": run.names, **groups_now.columns()})


def predictions(images: ImageSet, found: Newcomers) -> Any:
    """One row per new image: name, group, probability, decided and verdict, as a pandas DataFrame,
    or as a Frame if pandas is not installed."""
    names = list(images.names)
    return make_frame({"name": names, **found.columns.columns(), "verdict": list(found.verdicts)})


def groups(run: Run, typical: int = TYPICAL) -> list[GroupSummary]:
    """The groups that have images, as people left them. typical: the most names of each."""
    labelling = labelling_of(run)
    found = []
    for group, rows in _members(labelling):
        ranked = _typical_first(run, rows)[:typical]
        found.append(
            GroupSummary(
                group.id,
                group.name,
                group.title,
                group.role,
                len(rows),
                int(decided(labelling)[rows].sum()),
                tuple(run.names[row] for row in ranked),
                group.severity,
                group.note,
            )
        )
    return found


def text(run: Run) -> str:
    """A run in three lines: what it holds, its groups as people left them, and where it is."""
    sizes = [(printable(group.title), len(rows)) for group, rows in _members(labelling_of(run))]
    return three_lines(run, sizes)


def html(run: Run, typical: int = TYPICAL) -> str:
    """The groups of a run with thumbnails of their most typical images, for a notebook. typical:
    the most thumbnails of each group."""
    members = _members(labelling_of(run))
    parts = [f"<p>{_escaped(text(run).splitlines()[0])}</p>"]
    for group, rows in members[:SHOWN_GROUPS]:
        ranked = [row for row in _typical_first(run, rows) if run.thumbnails[row]][:typical]
        pictures = "".join(_thumbnail(run, row) for row in ranked)
        head = f"{_escaped(group.title)}</b>: {pluralise(len(rows), 'image')}, {group.role}"
        parts.append(
            f'<div style="border-left:4px solid {group.colour};padding-left:8px;margin:6px 0">'
            f"<b>{head}<br>{pictures}</div>"
        )
    if len(members) > SHOWN_GROUPS:
        parts.append(f"<p>and {pluralise(len(members) - SHOWN_GROUPS, 'more group')}</p>")
    return "".join(parts)


def show(run: Run, open_page: Callable[[str], object] | None = None) -> Path | None:
    """Show the report, inside a notebook or else in a browser. Returns the file that was opened;
    None in a notebook. open_page: called with the file's URL; None opens the browser."""
    kept = None if run.folder is None else read_text(run.folder, REPORT)
    if _in_notebook():
        from IPython.display import HTML, display

        page = escaping.escape(render_report(run) if kept is None else kept)
        style = f"width:100%;height:{REPORT_HEIGHT}px;border:1px solid #ccc"
        display(HTML(f'<iframe style="{style}" srcdoc="{page}"></iframe>'))
        return None
    if run.folder is not None and kept is not None:
        place = run.folder.absolute() / REPORT
    else:  # a browser opens files only
        place = Path(tempfile.mkdtemp(prefix="flawsort-")) / REPORT
        place.write_text(render_report(run), "utf-8")
    (open_page or webbrowser.open)(place.as_uri())
    return place


def _members(labelling: Labelling) -> list[tuple[Group, NDArray[np.int64]]]:
    """The groups that have images, with their rows."""
    found = [(group, labelling.members(group.id)) for group in labelling.groups.values()]
    return [(group, rows) for group, rows in found if len(rows)]


def _typical_first(run: Run, rows: Ints) -> NDArray[np.int64]:
    """Rows of a group by their distance to its centre."""
    values = np.asarray(run.embeddings[rows], np.float64)
    far = ((values - values.mean(axis=0)) ** 2).sum(axis=1)
    return np.asarray(rows, np.int64)[np.argsort(far, kind="stable")]


def _thumbnail(run: Run, row: int) -> str:
    data = base64.b64encode(run.thumbnails[row]).decode()
    return (
        f'<img src="data:image/jpeg;base64,{data}" title="{_escaped(run.names[row])}" '
        f'style="height:{THUMBNAIL_HEIGHT}px;margin:2px;display:inline-block">'
    )


def _escaped(words: str) -> str:
    return escaping.escape(printable(words))


def _in_notebook() -> bool:
    """Whether this runs in a notebook, where pages can be shown."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")
