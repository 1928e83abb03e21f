"""The rows of benchmarks/teach.py, the file that keeps them, and their tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from quality_tables import MODE_WORDS, MODES, mean, number

__all__ = ["COUNTS", "MODES", "Row", "append_row", "key_of", "print_row", "print_summary"]

# The numbers of answers a kind.
COUNTS = (1, 3, 5, 10)
KEY = ("set", "mode", "preset", "seeds", "images", "version")
SHARES = ("taught", "clusters", "nearest", "mean", "wrong", "run", "new")
ORDERS = ("each", "drawn", "queue", "queue 60%")
RESTS = tuple(f"{name} rest" for name in ORDERS)
HIDDEN = ("hidden AUROC", "hidden found", "unseen found", "unseen wrong")
OTHERS = (*HIDDEN, "lost", "ECE", "sure", "sure right")
# What is wanted of the mean over all sets with normals, in points: at 5 answers a kind above
# naming clusters and above the nearest neighbour, and new images below those of the run.
WANTED_ABOVE = {"clusters": 0.10, "nearest": 0.05}
WANTED_NEW = 0.03


@dataclass(frozen=True, kw_only=True)
class Row:
    """One set, with or without normals. figures: for each measure a figure for each number of
    answers, or a single one."""

    set: str
    mode: str
    preset: str
    seeds: int
    images: int
    version: str
    figures: dict[str, list[float]]

    @property
    def key(self) -> str:
        return key_of({name: getattr(self, name) for name in KEY})


def key_of(identity: dict[str, object]) -> str:
    """Equal for rows that need to be measured only once."""
    return json.dumps([identity[name] for name in KEY])


def read_rows(path: Path) -> list[Row]:
    """The rows of a results file, empty if there is none; half a line of a run that was killed and
    rows of another form are left out."""
    if not path.exists():
        return []
    names, rows = {field.name for field in fields(Row)}, []
    for line in path.read_text("utf-8").splitlines():
        try:
            values = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(values, dict) and values.keys() == names:
            rows.append(Row(**values))
    return rows


def append_row(path: Path, row: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    half_line = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if half_line else "") + json.dumps(asdict(row)) + "\n")


def print_row(row: Row) -> None:
    print(f"\n{row.set}, {MODE_WORDS[row.mode]}, {row.images} images")
    _print_figures(row.figures)


def means_of(rows: Sequence[Row]) -> dict[str, list[float]]:
    """The mean of each figure over the rows: every set counts the same."""
    names = dict.fromkeys(name for row in rows for name in row.figures)
    return {
        name: [
            mean(values) or 0.0
            for values in zip(
                *(row.figures[name] for row in rows if name in row.figures), strict=True
            )
        ]
        for name in names
    }


def print_summary(rows: Sequence[Row]) -> None:
    """Print the means over the sets with and without normals, and whether they are as wanted."""
    for mode in MODES[::-1]:
        some = [row for row in rows if row.mode == mode]
        if not some:
            continue
        found = means_of(some)
        print(f"\nMean of {len(some)} sets, {MODE_WORDS[mode]}")
        _print_figures(found)
        for line in verdicts(found):
            print(line)


def verdicts(figures: dict[str, list[float]]) -> list[str]:
    """What is wanted at 5 answers a kind, and what was found."""
    at = COUNTS.index(5)
    taught, lines = figures["taught"][at], []
    for name, least in WANTED_ABOVE.items():
        above = taught - figures[name][at]
        lines.append(
            f"5 a kind: {100 * above:+.1f} points to {name}, wanted {100 * least:+.0f} or more: "
            f"{'yes' if above >= least else 'no'}"
        )
    below = figures["run"][at] - figures["new"][at]
    lines.append(
        f"5 a kind: new images {100 * -below:+.1f} points to images of the run, wanted "
        f"{-100 * WANTED_NEW:+.0f} or more: {'yes' if below <= WANTED_NEW else 'no'}"
    )
    for name in ("each", "drawn"):
        reached = [
            str(count)
            for count, queue, other in zip(COUNTS, figures["queue 60%"], figures[name], strict=True)
            if queue >= other
        ]
        lines.append(
            f"The queue with 60% of the answers is as right as '{name}' at "
            f"{', '.join(reached) or 'none'} of {', '.join(map(str, COUNTS))} answers a kind"
        )
    return lines


def _print_figures(figures: dict[str, list[float]]) -> None:
    print(f"{'answers a kind':<14}" + "".join(f"{count:>7}" for count in COUNTS))
    both = [name for pair in zip(ORDERS, RESTS, strict=True) for name in pair]
    for name in (*SHARES, *both, *OTHERS):
        print(f"{name:<14}" + "".join(f"{number(one):>7}" for one in figures[name]))
    print(f"{'all':<14}{number(figures['all'][0]):>7}", flush=True)
