"""Teach a saved run from Python: labels by name in, what the model suggests and measures out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flawsort.core.errors import RunError
from flawsort.labels.accuracy import Estimate, audited, suggestions_were_right
from flawsort.labels.edit_checks import Edit, Payload
from flawsort.labels.edits import apply
from flawsort.labels.groups import Labelling
from flawsort.labels.known import checked_labels
from flawsort.labels.names import check_names, means_normal
from flawsort.labels.session import Session
from flawsort.labels.state import State
from flawsort.runs.run import Run


def teach_run(run: Run, labels: Mapping[str, Any], author: str = "") -> None:
    """Decide images of a run, as a review does: one edit for each label. labels: by the names of
    images, None for no label; `normal`, `good` and `ok` mean normal. Nothing is written if any of
    them cannot be used. Each label of an undecided image is an answer to what was suggested for it
    before any of them."""
    if run.folder is None:
        raise RunError("The run is not saved, so nobody can teach it. Save it first.")
    known = checked_labels(labels, run.names)
    rows_of: dict[str, list[int]] = {}
    for name, label in known.items():
        rows_of.setdefault(label, []).append(run.row_of[name])
    with Session(run.folder, run) as session:
        seen, now, linkage = session.state.suggestions, session.labelling, np.asarray(run.linkage)
        moves = []
        for label in sorted(rows_of):
            moves.append({"images": sorted(rows_of[label]), **_target(label, now)})
            # All of them are tried before the first is saved.
            after = apply(Edit("move", moves[-1]), now, linkage)
            check_names(now, after)
            now = after
        for move in moves:
            session.edit("move", move, session.version, author, seen=seen)


def measured(state: State) -> dict[str, dict[str, float] | None]:
    """How often suggestions and groups were right, by what people answered; None while there are
    too few answers."""
    return {
        "suggestions": _figures(suggestions_were_right(state.labelling)),
        "audit": _figures(audited(state.labelling, state.space())),
    }


def _target(label: str, now: Labelling) -> Payload:
    """Where images with a label go: to the group of that name, or to a new one."""
    if means_normal(label):
        return {"to": "normal"}
    same = [group.id for group in now.groups.values() if group.name == label]
    return {"to": same[0]} if same else {"to": "new", "name": label}


def _figures(found: Estimate | None) -> dict[str, float] | None:
    if found is None:
        return None
    low, high = found.interval
    return {"n": found.n, "share": found.share, "low": low, "high": high}
