"""What the review server says about a run and its groups, from arrays to bodies."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.ward import cut
from flawsort.core.errors import OptionError, RunError
from flawsort.labels.edit_checks import Edit
from flawsort.labels.groups import Labelling, kinds
from flawsort.labels.queue import Question, estimated_purity, next_question, progress
from flawsort.labels.store import State
from flawsort.outputs.exports import FORMATS
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
from flawsort.runs.folder import Run
from flawsort.runs.preview import linkage_of

# A slider beyond it is no help to anybody.
MAX_K = 60
MOST_PARTS = 24
MOST_SIMILAR = 200


def describe_run(name: str, run: Run) -> RunBody:
    """All of a run that the page shows, but its pictures."""
    check_run(run)
    table, manifest = run.table, run.manifest
    n, saved = len(table["name"]), int(manifest["clusters"]["n_clusters"])
    return RunBody(
        name=name,
        fingerprint=fingerprint(run),
        n=n,
        mode=str(manifest["mode"]),
        k=Span(saved=saved, min=min(2, saved, n), max=max(min(n, MAX_K), saved)),
        grid=[int(count) for count in manifest["grid"]],
        heat=Heat(low=float(manifest["heat"]["low"]), high=float(manifest["heat"]["high"])),
        names=table["name"],
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
    """The groups as they stand."""
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
        kinds={row: list(some) for row, some in enumerate(kinds(run, labelling)) if len(some) > 1},
        confirmed=np.flatnonzero(labelling.confirmed).tolist(),
        undo=state.undo,
        redo=state.redo,
        spent=state.spent,
    )


def describe_queue(
    run: Run, state: State, skipped: Collection[int], answered: Collection[int]
) -> QueueBody:
    """What to ask next, and how far one is. skipped: ids of groups not to ask about now. answered:
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
    """The images that people answered for one by one. done: the edits in force."""
    rows: set[int] = set()
    for edit in done:
        if edit.kind in ("move", "accept", "several"):
            rows.update(edit.payload.get("images", ()))
        if edit.kind == "carry":
            rows.update(edit.payload.get("confirmed", ()))
    return rows


def check_run(run: Run) -> None:
    """RunError where the parts of a run do not belong together, which hashes do not show."""
    try:
        n = len(run.table["name"])
        columns = ("sha256", "path", "cluster", "score", "typicality", "runner_up", "flags")
        counts = {name: len(run.table[name]) for name in columns}
        counts |= {"scores": len(run.scores), "embeddings": len(run.embeddings)}
        counts |= {"layout": len(run.layout), "thumbnails": len(run.thumbnails)}
        counts["linkage (one row less)"] = len(run.linkage) + 1
        wrong = [f"{name} has {count}" for name, count in counts.items() if count != n]
        if math.prod(run.manifest["grid"]) != run.scores.shape[1]:
            wrong.append(f"a patch grid of {run.manifest['grid']} has {run.scores.shape[1]} scores")
        if not set(run.regions["name"]) <= set(run.table["name"]):
            wrong.append("regions are of images that it does not have")
        float(run.manifest["heat"]["low"]), float(run.manifest["heat"]["high"])
        run.manifest["view"], run.manifest["mode"], run.manifest["backbone"]
        int(run.manifest["clusters"]["n_clusters"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise RunError(f"The run is damaged: it lacks or garbles {error}.") from error
    if not n or wrong:
        raise RunError(f"The run has {n} images, but {'; '.join(wrong) or 'needs at least 1'}.")


def fingerprint(run: Run) -> str:
    """Another one whenever a row may be another image, or look another way."""
    manifest = run.manifest
    parts = [manifest["view"], manifest["grid"], manifest["heat"], manifest["backbone"]]
    found = hashlib.sha256(json.dumps(parts, sort_keys=True).encode())
    found.update("\n".join(map(str, run.table["sha256"])).encode())
    found.update("\n".join(run.table["name"]).encode())
    found.update(np.ascontiguousarray(run.layout).tobytes())
    return found.hexdigest()[:16]


def similar_images(run: Run, row: int, n: int) -> list[SimilarBody]:
    """The n images nearest to one, without itself."""
    values = np.asarray(run.embeddings, np.float64)
    far = np.sqrt(((values - values[row]) ** 2).sum(axis=1))
    far[row] = np.inf
    nearest = np.argsort(far, kind="stable")[: min(n, len(far) - 1)]
    return [SimilarBody(row=int(other), distance=float(far[other])) for other in nearest]


def split_group(run: Run, labelling: Labelling, group: int, parts: int) -> PartsBody:
    """A group cut where the tree of its images would cut it."""
    rows = labelling.members(group)
    most = min(MOST_PARTS, len(rows))
    if len(rows) < 2:
        raise OptionError(f"A group needs 2 images to be split. This one has {len(rows)}.")
    if not 2 <= parts <= most:
        raise OptionError(f"parts must be between 2 and {most}. Got {parts}.")
    labels = cut(linkage_of(run.linkage, rows), parts)
    return PartsBody(parts=[rows[labels == part].tolist() for part in range(parts)])


def _regions(run: Run) -> RegionsBody:
    row_of = {name: row for row, name in enumerate(run.table["name"])}
    boxes = mask_boxes(run.regions["mask"], run.manifest["grid"][1])
    rows, columns = run.manifest["grid"]
    thousandths = np.rint(boxes / [columns, rows, columns, rows] * 1000).astype(int)
    return RegionsBody(
        image=[row_of[name] for name in run.regions["name"]],
        box=thousandths.ravel().tolist(),
        cluster=run.regions["cluster"],
    )


def _question(asked: Question) -> QuestionBody:
    rows = [int(row) for row in asked.rows]
    return QuestionBody(kind=asked.kind, group=asked.group, rows=rows, why=asked.why)


def mask_boxes(masks: Sequence[str], columns: int) -> NDArray[np.int64]:
    """(n, 4): left, top, right, bottom of masks as regions.csv writes them, in patches."""
    if not masks:
        return np.empty((0, 4), np.int64)
    text = " ".join(masks)
    cells = np.fromstring(text.replace("-", " "), np.int64, sep=" ")
    letters = np.frombuffer(text.encode(), np.uint8)
    between = letters[(letters == ord(" ")) | (letters == ord("-"))]
    counts = [mask.count(" ") + mask.count("-") + 1 for mask in masks]
    starts = np.cumsum([0, *counts[:-1]])
    down, across = np.divmod(cells, columns)
    left, right = across.copy(), across + 1
    # Patches from one to another that lie in different rows are all of those between.
    around = np.flatnonzero((between == ord("-")) & (down[:-1] < down[1:]))
    left[around], right[around] = 0, columns
    return np.stack(
        [
            np.minimum.reduceat(left, starts),
            np.minimum.reduceat(down, starts),
            np.maximum.reduceat(right, starts),
            np.maximum.reduceat(down, starts) + 1,
        ],
        axis=1,
    )


def _numbers(values: Iterable[Any]) -> list[float | None]:
    """To six digits, which is all that is shown; what JSON cannot hold comes as null."""
    return [float(f"{value:.6g}") for value in values]


def _packed(values: NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values.astype(dtype)).tobytes()).decode("ascii")
