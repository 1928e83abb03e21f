"""A run, and what people made of it, against true labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from flawsort.clusters.ward import cut
from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import Ints
from flawsort.core.text import pluralise, printable
from flawsort.labels.session import Session
from flawsort.outputs.report import read_reviewed, render_report
from flawsort.research.metrics import Agreement, agreement, purity_curve, several_kinds
from flawsort.research.truth import EXCLUDED_LABELS, read_truth
from flawsort.runs.changes import replace_files
from flawsort.runs.folder import EDITS, REPORT, open_run
from flawsort.runs.run import Run
from flawsort.runs.tables import SEVERAL

EVALUATION = "evaluation.json"


def evaluate_run(folder: Path, truth: Path) -> dict[str, Any]:
    """Compare a run with true labels, at its own number of groups and at the true one.

    truth: a folder whose subfolders are the labels, or a CSV. The result is also written to the
    run, as evaluation.json and in its report.
    """
    run = open_run(folder)
    labels = read_truth(truth, run.images)
    evaluation = evaluate(run, labels)
    if (folder / EDITS).exists():
        evaluation["reviewed"] = _reviewed(run, folder, labels)
    texts = {
        EVALUATION: json.dumps(evaluation, indent=2) + "\n",
        REPORT: render_report(run, evaluation, reviewed=read_reviewed(folder, run)),
    }
    try:
        replace_files(folder, texts)
    except OSError as error:
        raise OptionError(
            f"Cannot write '{folder / EVALUATION}': {error.strerror or error}. The result is kept "
            "in the run: copy it to where you may write, and evaluate the copy."
        ) from error
    return evaluation


def evaluate_against(
    run: Run, truth: str | Path | Mapping[str, str] | Sequence[str | None]
) -> dict[str, Any]:
    """As `evaluate`. truth: a folder or a CSV file as for `read_truth`, labels by the names of
    images, or one an image."""
    if isinstance(truth, str | Path):
        return evaluate(run, read_truth(Path(truth), run.images))
    if isinstance(truth, Mapping):
        unknown = [name for name in truth if name not in run.row_of]
        if unknown:
            raise InputError(
                f"truth has {pluralise(len(unknown), 'name')} that the run does not have, the "
                f"first '{printable(unknown[0])}'. Name images as in run.names."
            )
        return evaluate(run, [truth.get(name) for name in run.names])
    if len(truth) != len(run):
        raise InputError(
            f"truth must have a label for each of the {len(run)} images of the run, None where it "
            f"is not known. Got {len(truth)}."
        )
    return evaluate(run, truth)


def evaluate(run: Run, truth: Sequence[str | None]) -> dict[str, Any]:
    """A run against true labels, one an image of its table. `combined` and the like are left out,
    as in the paper; of images with several true kinds it counts how many of them were found."""
    several = [i for i, label in enumerate(truth) if label is not None and SEVERAL in label]
    rows = _single(truth)
    if not rows:
        raise InputError("None of the run's images has a true label.")
    labels = [str(truth[i]) for i in rows]
    true_k = len(set(labels))
    found = _agree(labels, run.labels[rows])
    return {
        **found,
        "several_kinds": _several(run, truth, several, found) if several else None,
        "n_evaluated": len(rows),
        "excluded": sorted({label for label in truth if label in EXCLUDED_LABELS and label}),
        "true_k": true_k,
        "at_true_k": _agree(labels, cut(run.linkage, true_k)[rows]),
        "truth": list(truth),
    }


def _reviewed(run: Run, folder: Path, truth: Sequence[str | None]) -> dict[str, Any]:
    """The groups as people left them against true labels: the labels that it took, the purity that
    they bought, and how many groups of the tree, a label each, would have been as pure."""
    with Session(folder, run) as session:
        labelling, spent = session.labelling, session.labels_spent
    rows = _single(truth)
    found = _agree([str(truth[i]) for i in rows], labelling.labels[rows])
    kept = [label if row in set(rows) else None for row, label in enumerate(truth)]
    curve = purity_curve(kept, run.linkage)
    enough = np.flatnonzero(curve >= found["purity"] - 1e-12)
    return {
        **found,
        "labels_spent": spent,
        "labels_of_the_tree": int(enough[0]) + 1 if len(enough) else None,
        "n_confirmed": int(labelling.confirmed.sum()),
    }


def _several(
    run: Run,
    truth: Sequence[str | None],
    rows: list[int],
    found: dict[str, Any],
) -> dict[str, Any]:
    """Images of several kinds; found: the agreement of the others, which says what a group is."""
    best = np.argmax(found["confusion"], axis=0)
    class_of = {
        group: found["classes"][row] for group, row in zip(found["clusters"], best, strict=True)
    }
    wanted = [{kind.strip() for kind in str(truth[i]).split(SEVERAL)} for i in rows]
    kinds = run.kinds
    return asdict(several_kinds(wanted, [list(kinds[i]) for i in rows], class_of))


def _single(truth: Sequence[str | None]) -> list[int]:
    """The rows of images with one true kind."""
    return [
        i
        for i, label in enumerate(truth)
        if label is not None and label not in EXCLUDED_LABELS and SEVERAL not in label
    ]


def _agree(labels: list[str], groups: Ints) -> dict[str, Any]:
    result: Agreement = agreement(labels, groups)
    return {
        "nmi": result.nmi,
        "ari": result.ari,
        "f1": result.f1,
        "f1_micro": result.f1_micro,
        "purity": result.purity,
        "classes": list(result.classes),
        "clusters": list(result.clusters),
        "confusion": result.confusion.tolist(),
    }
