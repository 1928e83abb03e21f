"""The JSON bodies of the review server, made from a run and its groups."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.ward import cut, linkage_of
from flawsort.core.errors import OptionError
from flawsort.core.records import Floats
from flawsort.labels.accuracy import (
    LEAST_ANSWERS,
    Estimate,
    audited,
    next_audit,
    suggestions_were_right,
)
from flawsort.labels.edit_checks import Edit
from flawsort.labels.groups import Labelling, other_kinds
from flawsort.labels.leases import Asked
from flawsort.labels.names import offers
from flawsort.labels.queue import Question, progress
from flawsort.labels.regions import settled_regions
from flawsort.labels.state import State
from flawsort.labels.suggestions import decided
from flawsort.labels.verdict import count_answers, verdict_curve
from flawsort.outputs.exports import FORMATS
from flawsort.outputs.web import k_span
from flawsort.review.people import describe_own
from flawsort.review.schemas import (
    AccuracyBody,
    AuditBody,
    CostBody,
    EstimateBody,
    FindingBody,
    FormatBody,
    GroupBody,
    HealthBody,
    Heat,
    OfferBody,
    PartsBody,
    QuestionBody,
    QueueBody,
    RegionsBody,
    RunBody,
    SimilarBody,
    Span,
    StateBody,
    VerdictBody,
)
from flawsort.runs.looking import Looking
from flawsort.runs.run import Run

MOST_PARTS = 24
MOST_SIMILAR = 200
# The byte of an image without a probability.
UNKNOWN = 255


def describe_run(name: str, run: Run, lots: str = "") -> RunBody:
    """Everything that the page shows of a run, except its pictures and groups. lots: the name of
    the table of lots."""
    table, n, saved = run.table, len(run), run.n_clusters
    return RunBody(
        name=name,
        fingerprint=fingerprint(run),
        basis=basis(run),
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
        lots=lots,
        places=Looking(run).known,
        formats=[
            FormatBody(name=one.name, title=one.title, words=one.words) for one in FORMATS.values()
        ],
        health=_health(run),
    )


def describe_state(run: Run, state: State, of: str) -> StateBody:
    """The current groups, as decided or suggested. of: the basis of the run."""
    now, found = state.settled, state.suggestions
    who = decided(now)
    others = other_kinds(run, now, settled_regions(run, state))
    labels = now.labels.tolist()
    n, sure, maybe = (
        _by_group(now.labels[some]) for some in (slice(None), who, ~np.isnan(found.probability))
    )
    return StateBody(
        version=state.version,
        basis=of,
        k=now.k,
        groups=[
            GroupBody(
                id=group.id,
                name=group.name,
                title=group.title,
                role=group.role,
                severity=group.severity,
                note=group.note,
                n=n.get(group.id, 0),
                decided=sure.get(group.id, 0),
                suggested=maybe.get(group.id, 0),
            )
            for group in now.groups.values()
        ],
        labels=labels,
        probability=percent_bytes(found.probability),
        kinds={row: [labels[row], *groups] for row, groups in others.items()},
        decided=np.flatnonzero(who).tolist(),
        different=sorted(sorted(pair) for pair in now.different),
        notes=dict(now.notes),
        offers=[OfferBody(kind=one.kind, groups=list(one.groups)) for one in offers(now)],
        undo=state.undo,
        redo=state.redo,
        own=describe_own(state.own),
        spent=state.spent,
    )


def percent_bytes(probability: Floats) -> str:
    """Probabilities in whole percent, one byte each, as base64; UNKNOWN for nan."""
    percent = np.where(np.isnan(probability), UNKNOWN, np.floor(100 * probability + 1e-9))
    return _packed(percent, "u1")


def describe_queue(state: State, asked: Asked) -> QueueBody:
    """The next question, and the progress."""
    now, question = state.labelling, asked.question
    done, total = progress(now)
    return QueueBody(
        question=None if question is None else _question(question),
        others=asked.others,
        done=done,
        total=total,
        spent=state.spent,
        suggestions=_estimate(suggestions_were_right(now), len(now.answers)),
    )


def describe_accuracy(state: State) -> AccuracyBody:
    """How right the suggestions were, and the groups are."""
    now = state.labelling
    return AccuracyBody(
        suggestions=_estimate(suggestions_were_right(now), len(now.answers)),
        audit=_estimate(audited(now, state.space()), _n_audited(now)),
    )


def describe_audit(labelling: Labelling, fingerprint: str) -> AuditBody:
    """The next random image. The order depends on the run only."""
    seed = int(fingerprint, 16)
    return AuditBody(row=next_audit(labelling, seed), n=_n_audited(labelling))


def describe_verdict(state: State) -> VerdictBody:
    """What each threshold of OK and not OK costs."""
    now = state.labelling
    curve = verdict_curve(now, state.space())
    n_flaws, n_normal = count_answers(now)
    return VerdictBody(
        n_flaws=n_flaws,
        n_normal=n_normal,
        least=LEAST_ANSWERS,
        threshold=now.threshold,
        costs=[] if curve is None else [CostBody(**asdict(cost)) for cost in curve.costs],
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


def basis(run: Run) -> str:
    """Changes whenever an edit would mean something else: other images, another tree, or other
    clusters. Replacing a run by the same run changes nothing."""
    found = hashlib.sha256("\n".join(map(str, run.table["sha256"])).encode())
    found.update(np.ascontiguousarray(run.linkage).tobytes())
    found.update(np.ascontiguousarray(run.labels).tobytes())
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


def _health(run: Run) -> HealthBody | None:
    if run.health is None:
        return None
    findings = [
        FindingBody(
            code=one.code,
            sentence=one.sentence,
            advice=one.advice,
            value=one.value,
            group=one.group,
            rows=[run.row_of[name] for name in one.images if name in run.row_of],
        )
        for one in run.health.findings
    ]
    return HealthBody(findings=findings, not_looked_at=list(run.health.not_looked_at))


def _regions(run: Run) -> RegionsBody:
    boxes = np.rint(run.outlines.boxes(run.grid) * 1000).astype(int)
    return RegionsBody(
        image=run.region_rows.tolist(),
        box=boxes.ravel().tolist(),
        share=np.round(run.outlines.shares(run.grid), 6).tolist(),
        cluster=run.regions["cluster"],
    )


def _by_group(labels: NDArray[np.int64]) -> dict[int, int]:
    ids, counts = np.unique(labels, return_counts=True)
    return dict(zip(ids.tolist(), counts.tolist(), strict=True))


def _n_audited(labelling: Labelling) -> int:
    """The answers of the audit that count; "cannot tell" does not."""
    return sum(bool(labelling.confirmed[row]) for row in labelling.audits)


def _estimate(found: Estimate | None, n: int) -> EstimateBody:
    if found is None:
        return EstimateBody(n=n, least=LEAST_ANSWERS)
    low, high = found.interval
    return EstimateBody(
        n=found.n,
        together=found.together,
        least=LEAST_ANSWERS,
        share=found.share,
        low=low,
        high=high,
    )


def _question(question: Question) -> QuestionBody:
    return QuestionBody(
        kind=question.kind,
        group=question.group,
        rows=list(question.rows),
        why=question.why,
        other=question.other,
        other_rows=list(question.other_rows),
    )


def _numbers(values: Iterable[Any]) -> list[float | None]:
    """Rounded to six digits; values that JSON cannot hold become null."""
    return [float(f"{value:.6g}") for value in values]


def _packed(values: NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values.astype(dtype)).tobytes()).decode("ascii")
