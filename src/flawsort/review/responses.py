"""The JSON bodies of the review server, made from a run and its groups."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.ward import cut, linkage_of
from flawsort.core.errors import OptionError
from flawsort.labels.edit_checks import Edit
from flawsort.labels.groups import Labelling, kinds
from flawsort.labels.queue import Question, estimated_purity, next_question, progress
from flawsort.labels.store import State
from flawsort.outputs.exports import FORMATS
from flawsort.outputs.web import k_span
from flawsort.review.schemas import (
    FormatBody,
    GroupBody,
    Heat,
    PartsBody,
    QuestionBody,
    QueueBody,
    RegionsBody,
    RunBody,
    SimilarBody,
    Span,
    StateBody,
)
from flawsort.runs.run import Run

MOST_PARTS = 24
MOST_SIMILAR = 200


def describe_run(name: str, run: Run) -> RunBody:
    """Everything that the page shows of a run, except its pictures and groups."""
    table, n, saved = run.table, len(run), run.n_clusters
    return RunBody(
        name=name,
        fingerprint=fingerprint(run),
        n=n,
        mode=run.mode,
        k=Span(**k_span(n, saved)),
        grid=list(run.grid),
        heat=Heat(low=run.heat.low, high=run.heat.high),
        names=run.names,
        clusters=table["cluster"],
        scores=_numbers(table["score"]),
        typicality=_numbers(table["typicality"]),
        runner_up=table["runner_up"],
        flags=table["flags"],
        layout=_packed(np.rint(np.clip(run.layout, 0.0, 1.0) * 65535), "<u2"),
        merges=_packed(run.linkage[:, :2], "<i4"),
        heights=_packed(run.linkage[:, 2], "<f4"),
        regions=_regions(run),
        formats=[
            FormatBody(name=one.name, title=one.title, words=one.words) for one in FORMATS.values()
        ],
    )


def describe_state(run: Run, state: State) -> StateBody:
    """The current groups."""
    labelling = state.labelling
    pure = estimated_purity(labelling, run.embeddings)
    ids, counts = np.unique(labelling.labels, return_counts=True)
    n = dict(zip(ids.tolist(), counts.tolist(), strict=True))
    ids, counts = np.unique(labelling.labels[labelling.confirmed], return_counts=True)
    sure = dict(zip(ids.tolist(), counts.tolist(), strict=True))
    return StateBody(
        version=state.version,
        k=labelling.k,
        groups=[
            GroupBody(
                id=group.id,
                name=group.name,
                title=group.title,
                role=group.role,
                n=n.get(group.id, 0),
                confirmed=sure.get(group.id, 0),
                pure=pure[group.id],
            )
            for group in labelling.groups.values()
        ],
        labels=labelling.labels.tolist(),
        kinds={
            row: list(groups) for row, groups in enumerate(kinds(run, labelling)) if len(groups) > 1
        },
        confirmed=np.flatnonzero(labelling.confirmed).tolist(),
        undo=state.undo,
        redo=state.redo,
        spent=state.spent,
    )


def describe_queue(
    run: Run, state: State, skipped: Collection[int], answered: Collection[int]
) -> QueueBody:
    """The next question, and the progress. skipped: ids of groups not to ask about now. answered:
    rows that are not asked about again."""
    labelling = state.labelling
    question = next_question(labelling, run.embeddings, skipped=skipped, answered=answered)
    done, total = progress(labelling)
    pure = estimated_purity(labelling, run.embeddings)
    ids, counts = np.unique(labelling.labels, return_counts=True)
    at_home = sum(pure[group] * n for group, n in zip(ids.tolist(), counts.tolist(), strict=True))
    return QueueBody(
        question=None if question is None else _question(question),
        done=done,
        total=total,
        spent=state.spent,
        pure=at_home / total,
    )


def answered_rows(done: Iterable[Edit]) -> set[int]:
    """The rows that people have answered one by one. done: the edits in force."""
    rows: set[int] = set()
    for edit in done:
        if edit.kind in ("move", "accept", "several"):
            rows.update(edit.payload.get("images", ()))
        if edit.kind == "carry":
            rows.update(edit.payload.get("confirmed", ()))
    return rows


def fingerprint(run: Run) -> str:
    """Changes whenever a row may be another image, or look different."""
    manifest = run.manifest
    parts = [manifest["view"], manifest["grid"], manifest["heat"], manifest["backbone"]]
    found = hashlib.sha256(json.dumps(parts, sort_keys=True).encode())
    found.update("\n".join(map(str, run.table["sha256"])).encode())
    found.update("\n".join(run.names).encode())
    found.update(np.ascontiguousarray(run.layout).tobytes())
    return found.hexdigest()[:16]


def similar_images(run: Run, row: int, n: int) -> list[SimilarBody]:
    """The n images nearest to one image, without itself."""
    values = np.asarray(run.embeddings, np.float64)
    far = np.sqrt(((values - values[row]) ** 2).sum(axis=1))
    far[row] = np.inf
    nearest = np.argsort(far, kind="stable")[: min(n, len(far) - 1)]
    return [SimilarBody(row=int(other), distance=float(far[other])) for other in nearest]


def split_group(run: Run, labelling: Labelling, group: int, parts: int) -> PartsBody:
    """The parts of a group, split along the tree of its images."""
    rows = labelling.members(group)
    most = min(MOST_PARTS, len(rows))
    if len(rows) < 2:
        raise OptionError(f"A group needs 2 images to be split. This one has {len(rows)}.")
    if not 2 <= parts <= most:
        raise OptionError(f"parts must be between 2 and {most}. Got {parts}.")
    labels = cut(linkage_of(run.linkage, rows), parts)
    return PartsBody(parts=[rows[labels == part].tolist() for part in range(parts)])


def _regions(run: Run) -> RegionsBody:
    boxes = np.rint(run.outlines.boxes(run.grid) * 1000).astype(int)
    return RegionsBody(
        image=run.region_rows.tolist(),
        box=boxes.ravel().tolist(),
        cluster=run.regions["cluster"],
    )


def _question(question: Question) -> QuestionBody:
    rows = [int(row) for row in question.rows]
    return QuestionBody(kind=question.kind, group=question.group, rows=rows, why=question.why)


def _numbers(values: Iterable[Any]) -> list[float | None]:
    """Rounded to six digits; values that JSON cannot hold become null."""
    return [float(f"{value:.6g}") for value in values]


def _packed(values: NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values.astype(dtype)).tobytes()).decode("ascii")
