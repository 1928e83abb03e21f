"""The command `flawsort evaluate`: compares a run with true labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flawsort.cli import console
from flawsort.cli.options import Json, RunFolder
from flawsort.core.text import pluralise


def evaluate(
    run: RunFolder,
    truth: Annotated[
        Path,
        typer.Option(
            metavar="PATH", help="True labels: a folder with one subfolder per label, or a CSV."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Compare the groups of a run with true labels. The result is added to its report."""
    from flawsort.research.evaluate import evaluate_run

    result = evaluate_run(run, truth)
    if as_json:
        console.print_json(result)
    else:
        show_evaluation(result)
        console.next_step("flawsort", "review", run)


def show_evaluation(result: dict[str, Any]) -> None:
    """Print the metrics for the run's number of groups and for the true number, and the confusion
    matrix."""
    figures = ("nmi", "ari", "f1", "f1_micro", "purity")
    oracle = result["at_true_k"]
    console.print_table(
        "",
        ["", "groups", "NMI", "ARI", "F1", "F1 micro", "purity"],
        [
            ["as in the run", len(result["clusters"]), *(result[name] for name in figures)],
            ["if cut into the true number", result["true_k"], *(oracle[name] for name in figures)],
        ],
    )
    console.say("Purity: the share of images that have the commonest true kind of their group.")
    console.say()
    columns = ["true kind", *(f"group {group}" for group in result["clusters"])]
    rows = [
        [label, *counts]
        for label, counts in zip(result["classes"], result["confusion"], strict=True)
    ]
    console.print_table("", columns, rows)
    console.say()
    if result.get("several_kinds"):
        several = result["several_kinds"]
        console.say(
            f"Images that show several kinds: {several['n_images']}. "
            f"Of their true kinds {several['recall']:.0%} were found "
            f"({several['recall_of_label']:.0%} by the group alone), and of the kinds found "
            f"{several['precision']:.0%} are right."
        )
    if result.get("reviewed"):
        _show_reviewed(result["reviewed"])
    left_out = f"; left out: {', '.join(result['excluded'])}" if result["excluded"] else ""
    console.say(f"{result['n_evaluated']} of {len(result['truth'])} images evaluated{left_out}.")


def _show_reviewed(reviewed: dict[str, Any]) -> None:
    tree = reviewed["labels_of_the_tree"]
    as_pure = ""
    if tree:
        as_pure = f" Without a review, the same purity needs {pluralise(tree, 'group')}."
    console.say(
        f"As reviewed: purity {reviewed['purity']:.3f}, NMI {reviewed['nmi']:.3f}, after "
        f"{pluralise(reviewed['labels_spent'], 'label')} given by people.{as_pure} "
        f"{pluralise(reviewed['n_confirmed'], 'image')} "
        f"{'is' if reviewed['n_confirmed'] == 1 else 'are'} decided."
    )
