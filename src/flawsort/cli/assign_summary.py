"""What `flawsort assign` prints: groups, images, periods and notes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flawsort.cli import console
from flawsort.core.text import pluralise

SHOWN_ROWS = 40
SHOWN_PERIODS = 12


def show_assignment(result: dict[str, Any], output: Path | None) -> None:
    """Print the counts by group, the images if they are few, and the images set aside."""
    images = pluralise(result["n_images"], "image")
    console.say(f"{images} sorted into the groups of {result['run']}.")
    _show_table(["group", "images"], [list(entry) for entry in result["counts"].items()])
    if output is None or result["n_images"] <= SHOWN_ROWS:
        _show_images(result)
    _show_periods(result)
    notes = [*_verdict_notes(result), *_trend_notes(result), *_further_notes(result, output)]
    if notes:
        console.say()
    for note in notes:
        console.say(note)
    if result["kept"] or not result["taught"]:
        console.next_step("flawsort", "review", result["run"])


def _show_images(result: dict[str, Any]) -> None:
    """Print the first images, with the columns that say something."""
    shown = result["images"][:SHOWN_ROWS]
    columns = ["name", "group", "score", "novelty"]
    if result["threshold"] is not None:
        columns.insert(2, "verdict")
    if result["taught"]:
        columns[2:2] = ["probability"]
    if any(row["decided"] for row in shown):
        columns.append("decided")
    rows = [["" if row[name] is None else row[name] for name in columns] for row in shown]
    _show_table(columns, [[_word(value) for value in row] for row in rows])
    more = result["n_images"] - len(shown)
    if more:
        console.say(f"{more:,} more: -o FILE.csv writes all of them.")
    if result["taught"]:
        console.say(
            "A group without a probability was decided by a person, or nobody has taught it yet."
        )
    else:
        console.say(
            "Nobody has taught this run yet, so these are its clusters. A novelty above 1 means a "
            "new kind."
        )


def _word(value: object) -> object:
    return {True: "yes", False: ""}[value] if isinstance(value, bool) else value


def _verdict_notes(result: dict[str, Any]) -> list[str]:
    """How many images are OK, if a person has chosen a threshold."""
    if result["threshold"] is None:
        return []
    found = result["verdicts"]
    without = f", {found['']} without a verdict" if found[""] else ""
    return [
        f"Verdict: {found['OK']} OK, {found['not OK']} not OK{without} (OK from a probability of "
        f"{result['threshold']:.2g} for normal)."
    ]


def _show_table(columns: list[str], rows: list[list[Any]]) -> None:
    """Print a table after an empty line."""
    console.say()
    console.print_table("", columns, rows)


def _show_periods(result: dict[str, Any]) -> None:
    """Print the number of images per group and period, if there are several periods."""
    by_period = result["periods"]
    if len(by_period) > 1:
        groups = list(result["counts"])
        last = list(by_period.items())[-SHOWN_PERIODS:]
        rows = [[period, *(found.get(group, 0) for group in groups)] for period, found in last]
        _show_table([result["by"], *groups], rows)


def _trend_notes(result: dict[str, Any]) -> list[str]:
    """Notes on groups that have become more frequent, and on images that fit no group."""
    notes = []
    for rise in result["rises"]:
        count = pluralise(rise["count"], "image")
        notes.append(
            f"More frequent: {rise['group']} in {rise['period']}: {count}, "
            f"{rise['expected']:.1f} expected."
        )
    sizes = result["new_kinds"]
    if sizes:
        fit = "fits" if sum(sizes) == 1 else "fit"
        notes.append(f"{pluralise(sum(sizes), 'image')} {fit} no group of the run{_alike(sizes)}.")
    if apart := sum(map(_is_strange, result["images"])):
        are, them = ("is", "it") if apart == 1 else ("are", "them")
        notes.append(
            f"{pluralise(apart, 'image')} with a group {are} unlike the images of the run (novelty "
            f"above 1). The model has learnt from those alone: look at {them}."
        )
    return notes


def _is_strange(row: dict[str, Any]) -> bool:
    """Whether the model gave an image a group although it is near none of the run's images. It can
    be sure of that and wrong: photos of another product had probabilities of .99."""
    from flawsort.clusters.assign import UNSEEN
    from flawsort.runs.tables import NEW_KIND_TITLE

    named = row["probability"] is not None and row["group"] != NEW_KIND_TITLE
    return named and bool(row["cluster"] == UNSEEN)


def _alike(sizes: list[int]) -> str:
    """How many new kinds the images that fit no group look like."""
    if len(sizes) == 1:
        return "; they look like one new kind" if sizes[0] > 1 else ""
    *others, last = map(str, sizes)
    return f"; they look like {len(sizes)} new kinds, of {', '.join(others)} and {last} images"


def _further_notes(result: dict[str, Any], output: Path | None) -> list[str]:
    """Notes on images set aside, and on files written."""
    notes = [f"Note: {note}" for note in result["notes"]]
    notes += [f"Set aside: {entry['name']}: {entry['reason']}" for entry in result["set_aside"]]
    if output is not None:
        notes.append(f"Table: {output}")
    if result["kept"]:
        notes.append(f"Kept: {result['kept']}")
    return notes
