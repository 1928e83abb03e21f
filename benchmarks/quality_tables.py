"""The tables of benchmarks/quality.py: rows, means, sets that fall behind, leaving one set out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from quality_results import Row

# NMI of each setting on each set.
Figures: TypeAlias = dict[str, dict[str, float]]

FOUR = ("bottle", "hazelnut", "leather", "transistor")
TILES = "magnetic-tile"
# The groups of sets that have a mean: the default was once chosen by the old ones.
GROUPS = ("old 4", "tiles", "old 5", "others", "all")
# Settings that others are compared with, so they are no choice themselves.
BASELINES = ("paper", "plain")
MODES = ("none", "normals")
MODE_WORDS = {"none": "without normals", "normals": "with normals"}
# A set may not come out further below the plain mean of all patches than this.
BELOW_PLAIN = 0.03
# NMI at the true k of the default before this benchmark had more than the old five sets, each from
# one cut of the whole set (docs/evidence/results.md).
PREVIOUS = {
    "normals": {
        "bottle": 0.712, "hazelnut": 0.891, "leather": 0.728, "transistor": 0.753,
        "magnetic-tile": 0.570, "capsule": 0.315, "carpet": 0.681, "grid": 0.444,
        "deeppcb": 0.300, "hripcb": 0.235, "wood_surface": 0.424, "potato": 0.337,
        "ccb_glass": 0.594,
    },
    "none": {
        "bottle": 0.743, "hazelnut": 0.799, "leather": 0.771, "transistor": 0.698,
        "magnetic-tile": 0.214, "capsule": 0.306, "carpet": 0.770, "grid": 0.285,
        "metal_nut": 0.795, "deeppcb": 0.186, "hripcb": 0.032, "wood_surface": 0.273,
        "potato": 0.315, "neu": 0.345, "ccb_glass": 0.225,
    },
}  # fmt: skip
# NMI without and with normals as published, each paper with its own backbone.
PUBLISHED = {
    "the paper, WideResNet-50": {"old 4": (0.604, 0.728), "tiles": (0.179, 0.390)},
    "AnomalyNCD": {"old 4": (0.667, 0.735), "tiles": (0.268, 0.380)},
    "UniFormaly": {"tiles": (None, 0.421)},
}
HEADER = (
    f"{'set':<13} {'mode':<7} {'setting':<14} {'NMI':>5} {'ARI':>5} {'F1':>5}  {'subsets':>13}  "
    f"{'AUROC':>5} {'pixel':>5} {'prec.':>5} {'rec.':>5} {'k':>3} {'adv.':>4} {'off':>3} "
    f"{'cost':>5} {'s':>6}"
)


def number(value: float | None) -> str:
    """.534, 1.000, -.012, or nothing."""
    if value is None:
        return ""
    text = f"{value:.3f}"
    return text.replace("0.", ".", 1) if text.lstrip("-").startswith("0.") else text


def line_of(row: Row) -> str:
    """A row of the first table, under HEADER."""
    subsets = ""
    if row.subset_nmi is not None:
        subsets = f"{number(row.subset_nmi)} +- {number(row.subset_error)}"
    found = [row.auroc, row.pixel_auroc, row.precision, row.recall]
    return (
        f"{row.set:<13} {row.mode:<7} {row.name:<14} {number(row.nmi):>5} {number(row.ari):>5} "
        f"{number(row.f1):>5}  {subsets:>13}  {' '.join(f'{number(one):>5}' for one in found)} "
        f"{row.kinds:>3} {row.advised:>4} {row.advice_off:>3} {number(row.advice_cost):>5} "
        f"{row.seconds:>6.1f}"
    )


def in_group(name: str, group: str) -> bool:
    """Whether a set belongs to one of the GROUPS."""
    old = name in FOUR or name == TILES
    return {
        "old 4": name in FOUR,
        "tiles": name == TILES,
        "old 5": old,
        "others": not old,
        "all": True,
    }[group]


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that there are: every set counts the same."""
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


def group_means(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    """figures: by set. The mean of each of the GROUPS, None where it has no sets."""
    return {
        group: mean(value for name, value in figures.items() if in_group(name, group))
        for group in GROUPS
    }


def print_summary(rows: Sequence[Row]) -> None:
    """Print means over the sets, and the sets that fall behind."""
    by_setting: dict[tuple[str, str], dict[str, Row]] = defaultdict(dict)
    for row in rows:
        by_setting[row.mode, row.name][row.set] = row
    ordered = sorted(by_setting.items(), key=lambda item: MODES.index(item[0][0]))
    _print_nmi_means(ordered)
    _print_other_means(ordered)
    _print_falls(rows)


def _print_nmi_means(ordered: Sequence[tuple[tuple[str, str], Mapping[str, Row]]]) -> None:
    print("\nMean NMI at the true k (an oracle); every set counts the same.")
    heads = "".join(f"{group:>7}" for group in GROUPS)
    print(f"{'':<22} {'sets':>5}   {'over subsets:':<35}   whole set:")
    print(f"{'mode':<7} {'setting':<14} {'old+':>5}   {heads}   {heads}")
    for (mode, name), found in ordered:
        old = sum(in_group(one, "old 5") for one in found)
        blocks = [
            group_means({one: getattr(row, figure) for one, row in found.items()})
            for figure in ("subset_nmi", "nmi")
        ]
        cells = "   ".join("".join(f"{number(one):>7}" for one in b.values()) for b in blocks)
        print(f"{mode:<7} {name:<14} {f'{old}+{len(found) - old}':>5}   {cells}")


def _print_other_means(ordered: Sequence[tuple[tuple[str, str], Mapping[str, Row]]]) -> None:
    print("\nMeans of the other figures, over the sets that have them; adv.: the advised k.")
    heads = f"{'old 4':>7}{'tiles':>7}{'others':>7}"
    print(f"{'':<22} {'image AUROC:':<21}   {'pixel AUROC:':<21}   looks normal:   adv.:")
    print(f"{'mode':<7} {'setting':<14} {heads}   {heads}   {'prec.':>5} {'rec.':>5}   ", end="")
    print(f"{'off':>5} {'cost':>6} {'seconds':>9}")
    for (mode, name), found in ordered:
        cells = []
        for figure in ("auroc", "pixel_auroc"):
            means = group_means({one: getattr(row, figure) for one, row in found.items()})
            cells.append(
                "".join(f"{number(means[one]):>7}" for one in ("old 4", "tiles", "others"))
            )
        rows = found.values()
        normal = [mean(row.precision for row in rows), mean(row.recall for row in rows)]
        cells.append(" ".join(f"{number(one):>5}" for one in normal))
        off, cost = (mean(getattr(row, f"advice_{one}") for row in rows) for one in ("off", "cost"))
        cells.append(f"{off:>5.2f} {number(cost):>6} {mean(row.seconds for row in rows):>9.1f}")
        print(f"{mode:<7} {name:<14} {'   '.join(cells)}")


@dataclass(frozen=True)
class Fall:
    """A row below a baseline. plain: by how much it is below the plain mean, if by too much;
    previous: by how much below the previous default, if below it."""

    row: Row
    plain: float | None
    previous: float | None


def falls(rows: Sequence[Row]) -> list[Fall]:
    """The rows that are too far below the plain mean, which has no normals, or below the previous
    default. The first compares means over subsets, the second cuts of the whole set, since no
    other figures of it are known."""
    plain = {row.set: row.choice_nmi for row in rows if row.name == "plain"}
    found = []
    for row in rows:
        if row.name in BASELINES:
            continue
        behind = plain[row.set] - row.choice_nmi if row.set in plain else 0.0
        before = PREVIOUS[row.mode].get(row.set, 0.0) - row.nmi
        # Figures are recorded with three digits, so less than half of the last is no difference.
        fall = Fall(
            row,
            behind if behind > BELOW_PLAIN else None,
            before if before > 0.0005 else None,
        )
        if (fall.plain, fall.previous) != (None, None):
            found.append(fall)
    return found


def _print_falls(rows: Sequence[Row]) -> None:
    print(f"\nSets more than {number(BELOW_PLAIN)} below the plain mean (over subsets)", end="")
    print(", or below the previous default (whole set):")
    if not any(row.name == "plain" for row in rows):
        print("(The plain mean was not measured: add it to --presets.)")
    behind = sorted(falls(rows), key=lambda fall: (MODES.index(fall.row.mode), fall.row.name))
    for fall in behind:
        row, words = fall.row, []
        if fall.plain is not None:
            now, then = row.choice_nmi, row.choice_nmi + fall.plain
            words.append(f"{number(now)}, plain mean {number(then)} (-{number(fall.plain)})")
        if fall.previous is not None:
            then = PREVIOUS[row.mode][row.set]
            words.append(f"{number(row.nmi)}, before {number(then)} (-{number(fall.previous)})")
        print(f"{row.mode:<7} {row.name:<14} {row.set:<13} {'; '.join(words)}")
    if not behind:
        print("none")


def print_published(sets: Collection[str]) -> None:
    """Print published figures of the groups whose sets are all there."""
    lines = []
    for method, figures in PUBLISHED.items():
        for group, values in figures.items():
            if TILES in sets if group == "tiles" else set(FOUR) <= set(sets):
                cells = (
                    f"{MODE_WORDS[m]} {number(v)}" for m, v in zip(MODES, values, strict=True) if v
                )
                lines.append(f"{method:<26} {group:<6} {', '.join(cells)}")
    if lines:
        print("\nPublished NMI:", *lines, sep="\n")


@dataclass(frozen=True)
class Choice:
    """The setting with the best mean over all sets but this one."""

    left_out: str
    setting: str


def best(figures: Figures, sets: Collection[str]) -> str:
    """The setting with the best mean over these sets; of equal ones the first."""
    return max(figures, key=lambda name: float(np.mean([figures[name][one] for one in sets])))


def leave_one_out(figures: Figures) -> list[Choice]:
    """For each set the choice without it. Every setting must have all sets, at least two."""
    sets = list(next(iter(figures.values())))
    return [Choice(one, best(figures, [other for other in sets if other != one])) for one in sets]


def figures_of(rows: Sequence[Row], mode: str) -> tuple[Figures, list[str]]:
    """The figures of the settings that can be chosen and have all sets, and the names of those
    that lack some."""
    figures: Figures = defaultdict(dict)
    for row in rows:
        if row.mode == mode and row.name not in BASELINES:
            figures[row.name][row.set] = row.choice_nmi
    sets = list(dict.fromkeys(one for found in figures.values() for one in found))
    complete = {
        name: {one: found[one] for one in sets}
        for name, found in figures.items()
        if len(found) == len(sets)
    }
    return complete, [name for name in figures if name not in complete]


def figures_of_both(modes: Mapping[str, Figures]) -> Figures:
    """modes: the figures of each mode. For the settings that all modes have, the mean of each set
    over the modes that it has: a set counts once."""
    sets = list(dict.fromkeys(one for f in modes.values() for found in f.values() for one in found))
    names = [name for name in next(iter(modes.values())) if all(name in f for f in modes.values())]
    return {
        name: {
            one: float(np.mean([f[name][one] for f in modes.values() if one in f[name]]))
            for one in sets
        }
        for name in names
    }


def print_leave_one_out(rows: Sequence[Row]) -> None:
    """Print the choices for each mode, then one choice for both modes."""
    modes = {}
    for mode in dict.fromkeys(sorted((row.mode for row in rows), key=MODES.index)):
        figures, lacking = figures_of(rows, mode)
        if lacking:
            print(f"\n{MODE_WORDS[mode]}: left out, as they lack some sets: {', '.join(lacking)}")
        if figures:
            modes[mode] = figures
    print_choices(modes)


def print_choices(modes: Mapping[str, Figures]) -> None:
    """Print the choices by the figures of each mode, then one choice for both modes."""
    for mode, figures in modes.items():
        _print_choices(MODE_WORDS[mode], figures, {mode: figures})
    if len(modes) > 1:
        _print_choices("one choice for both modes", figures_of_both(modes), modes)


def _print_choices(title: str, figures: Figures, modes: Mapping[str, Figures]) -> None:
    """figures: what the choice is made by. modes: what is printed of it."""
    n_sets = len(next(iter(figures.values()), ()))
    print(f"\nLeave one set out, {title}: {len(figures)} settings, {n_sets} sets, NMI.")
    if n_sets < 2:
        print("This needs two sets and a setting that both modes have.")
        return
    choices, overall = leave_one_out(figures), best(figures, list(next(iter(figures.values()))))
    print(f"Chosen with all sets: {overall}. Its figures are optimistic: the same sets chose it.")
    print(f"{'left out':<13} {'chosen without':<14}", end="")
    print("".join(f"   {f'{mode}: gives':>14} {'with all':>9}" for mode in modes))
    columns = []
    for found in modes.values():
        columns.append({one.left_out: found[one.setting].get(one.left_out) for one in choices})
        columns.append({one.left_out: found[overall].get(one.left_out) for one in choices})
    for one in choices:
        _print_cells(one.left_out, one.setting, [column[one.left_out] for column in columns])
    means = [group_means(column) for column in columns]
    for group in GROUPS:
        if any(column[group] is not None for column in means):
            _print_cells(f"mean {group}", "", [column[group] for column in means])
    counts = Counter(one.setting for one in choices)
    print("Chosen, with the mean over all sets that each gives:")
    for name, count in counts.most_common():
        cells = (f"{mode} {number(mean(found[name].values()))}" for mode, found in modes.items())
        print(f"  {name:<14} {count} of {len(choices)} times   {', '.join(cells)}")


def _print_cells(first: str, second: str, values: Sequence[float | None]) -> None:
    cells = "".join(
        f"   {number(gives):>14} {number(with_all):>9}"
        for gives, with_all in zip(values[::2], values[1::2], strict=True)
    )
    print(f"{first:<13} {second:<14}{cells}")
