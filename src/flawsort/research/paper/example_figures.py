"""The figures of images: where the weights are, and which images the clusters hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import OptionError
from flawsort.core.records import Bags, Floats, Ints
from flawsort.embeddings.heat import OPACITY, colour_table
from flawsort.embeddings.method import Method
from flawsort.research.paper.layout import (
    DPI,
    FAINT,
    METHODS,
    house_style,
    set_name,
    type_name,
    write,
)
from flawsort.research.paper.methods import PAPER, represent, weights_of
from flawsort.research.paper.shared import PreparedSet
from flawsort.scores.hausdorff import hausdorff
from flawsort.scores.nearest import nearest_in_bank

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARK = "#ffe119"
# Red and orange look alike to some people, so the frames also differ in their lines.
OTHER_TYPE: dict[str, Any] = {"edgecolor": "#c1121f", "linestyle": "solid"}
SEVERAL_TYPES: dict[str, Any] = {"edgecolor": "#f08c00", "linestyle": (0, (2.5, 1.5))}
# The number of nearest images for which the pick of the maximum Hausdorff distance is shown.
NEAREST_SHOWN = 10
# The longer side of a picture in pixels.
LARGE, SMALL = 256, 128

_READING = (
    "Maximum Hausdorff: the frame marks the patch that decides the distance to the nearest image, "
    f"dots those for the next {NEAREST_SHOWN - 1}.\n"
    "Each column of weights has one scale of colours for all its images: the logarithm of the "
    "weight in multiples of an equal share."
)


def draw_attention(
    prepared: PreparedSet,
    folder: Path,
    *,
    rows: int = 6,
    method: Method = PAPER,
    stem: str = "",
    dpi: int = DPI,
) -> list[Path]:
    """What each distance attends to (Figure 3): one image of each type, at most `rows` of them.

    Writes <stem>.svg and .png to the folder, by default attention-<set>. Columns: the image, the
    patches that the maximum Hausdorff distance picks (Eq. 4), and the weights, overlaid:
    unsupervised (Eq. 5), semi-supervised (Eq. 6) if the set has normals, and from masks if a shown
    image has one. dpi: of the PNG file.
    """
    if rows < 1:
        raise OptionError(f"rows must be at least 1. Got {rows}.")
    title = f"Where the weights are: {set_name(prepared.task.name)}"
    with house_style():
        chosen = _one_of_each_type(prepared, rows)
        columns = _weights(prepared, chosen, method)
        figure = _attention(prepared, chosen, columns, title)
        name = stem or f"attention-{prepared.task.name}"
        return write(figure, folder, name, title, dpi=dpi)


def draw_clusters(
    prepared: PreparedSet,
    folder: Path,
    *,
    method: Method = PAPER,
    n_clusters: int = 16,
    per_cluster: int = 10,
    stem: str = "",
    dpi: int = DPI,
) -> list[Path]:
    """The images of each cluster, most typical first, with its major type and purity.

    Writes <stem>.svg and .png to the folder, by default clusters-<set>. Ward on weighted averages,
    semi-supervised if the set has normals. A set with fewer than n_clusters images has as many
    clusters as images. dpi: of the PNG file.
    """
    if n_clusters < 1 or per_cluster < 1:
        raise OptionError(
            "n_clusters and per_cluster must be at least 1. "
            f"Got n_clusters={n_clusters}, per_cluster={per_cluster}."
        )
    task = prepared.task
    row = "wa" if task.data.normals is None else "wa-semi"
    with house_style():
        shown = represent(prepared, row, method)
        labels = shown.labels(min(n_clusters, len(task.truth)))
        clusters = [
            _cluster(rows, shown.values[rows], task.truth)
            for rows in (np.flatnonzero(labels == label) for label in np.unique(labels))
        ]
        purity = sum(one.hits for one in clusters) / max(1, len(task.counted))
        title = (
            f"{set_name(task.name)}: {len(clusters)} clusters, {METHODS[row].lower()} "
            f"(purity {purity:.2f}, {task.n_classes} types)"
        )
        figure = _clusters(prepared, clusters, per_cluster, title)
        return write(figure, folder, stem or f"clusters-{task.name}", title, dpi=dpi)


def hausdorff_picks(bags: Bags, image: int, others: Sequence[int] | Ints) -> list[int]:
    """The patch of an image that decides its distance to each other one: m* of Eq. 4."""
    picks = []
    own = bags.patches[image]
    for other in others:
        distances = nearest_in_bank(own, bags.patches[other]).distances
        if bags.valid is not None:
            distances[~bags.valid[image]] = -1
        picks.append(int(distances.argmax()))
    return picks


def _one_of_each_type(prepared: PreparedSet, count: int) -> list[int]:
    """Rows of images of different types, those with a mask first."""
    truth, marked = prepared.task.truth, prepared.mask_shares.max(axis=1) > 0
    best: dict[str, tuple[bool, bool, int]] = {}
    for row, label in enumerate(prepared.task.data.labels):
        # The first image of each type, a marked one if there is any; combined types last.
        rank = (not marked[row], truth[row] is None, row)
        best[label] = min(rank, best.get(label, rank))
    return [row for _, _, row in sorted(best.values())[:count]]


def _weights(prepared: PreparedSet, chosen: list[int], method: Method) -> list[tuple[str, Floats]]:
    """The columns with weights: title, and (n_chosen, n_patches)."""
    titles = {"wa": "Unsupervised weights"}
    if prepared.task.data.normals is not None:
        titles["wa-semi"] = "Semi-supervised weights"
    if prepared.mask_shares[chosen].any():
        titles["wa-mask"] = "Weights from masks"
    return [(title, weights_of(prepared, row, method)[chosen]) for row, title in titles.items()]


def _attention(
    prepared: PreparedSet, chosen: list[int], columns: list[tuple[str, Floats]], title: str
) -> Figure:
    from matplotlib.figure import Figure

    heads = ["Image", "Maximum Hausdorff", *[head for head, _ in columns]]
    step, left, top = 1.55, 0.3, 0.5
    size = (left + step * len(heads), top + step * len(chosen) + 0.6)
    figure = Figure(size)
    figure.text(0.5, 1 - 0.16 / size[1], title, ha="center", va="center", fontsize=9.5)
    shown = [heat_of(weights) for _, weights in columns]
    for line, row in enumerate(chosen):
        picture = prepared.picture(row, LARGE)
        y = top + step * line
        name = type_name(prepared.task.data.labels[row])
        middle = 1 - (y + step / 2) / size[1]
        figure.text(0.15 / size[0], middle, name, ha="center", va="center", rotation=90)
        for at, head in enumerate(heads):
            place = axes_at(figure, left + step * at, y, step - 0.08, step - 0.08)
            place.imshow(picture, extent=(0, picture.shape[1], picture.shape[0], 0))
            if line == 0:
                place.set_title(head)
            if at == 1:
                _mark_picks(place, prepared, row, picture.shape)
            if at > 1:
                overlay(place, shown[at - 2][0][line].reshape(prepared.bags.grid))
    y = top + step * len(chosen) + 0.04
    for at, (_, highest) in enumerate(shown, start=2):
        _scale(axes_at(figure, left + step * at, y, step - 0.08, 0.07), highest)
    figure.text(0.5, 0.06 / size[1], _READING, ha="center", fontsize=6.5, color=FAINT)
    return figure


def heat_of(weights: Floats) -> tuple[NDArray[np.float64], float]:
    """Weights of a column of images as heat in 0..1, and the weight of full heat in equal shares.

    weights: (n_images, n_patches). An equal share of the weight or less has no heat; from there on
    heat is logarithmic, since a large flaw has a little weight on many patches and a small one all
    of it on one. Full heat is the largest weight of the median image.
    """
    shares = np.maximum(weights.astype(np.float64) * weights.shape[1], 1)
    highest = max(2.0, float(np.median(shares.max(axis=1))))
    return np.minimum(np.log(shares) / np.log(highest), 1), highest


def axes_at(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Empty axes without ticks or frame. Lengths are in inches, from the upper left corner."""
    across, down = figure.get_size_inches()
    box = (left / across, 1 - (top + height) / down, width / across, height / down)
    axes = figure.add_axes(box, xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    return axes


def _mark_picks(axes: Axes, prepared: PreparedSet, row: int, shape: Sequence[int]) -> None:
    """A frame around the pick for the nearest image, and dots on those for the next ones."""
    from matplotlib.patches import Rectangle

    distances = hausdorff(prepared.peers.minima, "max-min max")[row]
    order = np.argsort(distances, kind="stable")
    picks = hausdorff_picks(prepared.bags, row, order[order != row][:NEAREST_SHOWN])
    grid = prepared.bags.grid
    height, width = shape[0] / grid[0], shape[1] / grid[1]
    for number, (down, across) in enumerate(divmod(pick, grid[1]) for pick in picks):
        if number:
            middle = ((across + 0.5) * width, (down + 0.5) * height)
            axes.plot(*middle, "o", ms=2.6, mfc="white", mec="black", mew=0.5, zorder=2)
            continue
        corner = (across * width, down * height)
        for colour, thickness in (("black", 2.6), (MARK, 1.3)):
            look: dict[str, Any] = {"edgecolor": colour, "linewidth": thickness, "zorder": 3}
            box = Rectangle(corner, width, height, fill=False, clip_on=False, **look)
            axes.add_patch(box)


def overlay(axes: Axes, heat: Floats) -> None:
    """Lay heat (rows, columns) in 0..1 over the picture of the axes."""
    from matplotlib.colors import ListedColormap

    colours = ListedColormap(colour_table(OPACITY) / 255)
    extent = axes.images[0].get_extent()
    axes.imshow(heat, cmap=colours, vmin=0, vmax=1, extent=extent, interpolation="bilinear")


def _scale(axes: Axes, highest: float) -> None:
    """The colour scale of a column, from an equal share to the highest multiple of it."""
    axes.imshow(np.full((1, 256, 3), 160, np.uint8), extent=(0, 1, 0, 1), aspect="auto")
    overlay(axes, np.linspace(0, 1, 256)[np.newaxis])
    axes.set_aspect("auto")
    look: dict[str, Any] = {"va": "top", "fontsize": 6.5, "transform": axes.transAxes}
    axes.text(0, -0.5, "equal share", ha="left", **look)
    axes.text(1, -0.5, f"{highest:.0f} times or more", ha="right", **look)


@dataclass(frozen=True)
class _Cluster:
    """rows: its images, nearest to their mean first. major: the most frequent type among images
    that count, None if none does. hits: the number of these. counted: the number that count."""

    rows: Ints
    major: str | None
    hits: int
    counted: int


def _cluster(rows: Ints, vectors: Floats, truth: Sequence[str | None]) -> _Cluster:
    gaps = np.linalg.norm(vectors - vectors.mean(axis=0), axis=1)
    order = rows[np.argsort(gaps, kind="stable")]
    counts = Counter(label for label in (truth[row] for row in rows) if label is not None)
    if not counts:
        return _Cluster(order, None, 0, 0)
    major = min(counts, key=lambda label: (-counts[label], label))
    return _Cluster(order, major, counts[major], counts.total())


def _clusters(
    prepared: PreparedSet, clusters: list[_Cluster], per_cluster: int, title: str
) -> Figure:
    from matplotlib.figure import Figure

    shown = [one.rows[:per_cluster].tolist() for one in clusters]
    across = min(4, len(clusters))
    columns = min(5, max(map(len, shown)))
    # Clusters in one row are as high as the largest of them needs.
    beside = [shown[start : start + across] for start in range(0, len(shown), across)]
    lines = [-(-max(map(len, row)) // columns) for row in beside]
    side, gap, top, bottom = 0.45, 0.16, 0.36, 0.34
    heights = [0.25 + side * count for count in lines]
    width = max(side * columns, 1.9)  # room for a title
    size = (gap + across * (width + gap), top + sum(heights) + bottom)
    figure = Figure((max(size[0], 5.5), size[1]))
    figure.text(0.5, 1 - 0.16 / size[1], title, ha="center", va="center", fontsize=9.5)
    frames: dict[str, dict[str, Any]] = {}
    for number, (cluster, rows) in enumerate(zip(clusters, shown, strict=True)):
        line, column = divmod(number, across)
        x, y = gap + column * (width + gap), top + sum(heights[:line]) + 0.2
        place = axes_at(figure, x, y, width, side * lines[line])
        _title(place, cluster)
        for at, row in enumerate(rows):
            meaning, frame = _frame(prepared.task.truth[row], cluster.major)
            frames |= {meaning: frame} if meaning else {}
            _place(place, prepared.picture(row, SMALL), divmod(at, columns), frame)
        place.set(xlim=(0, width / side), ylim=(lines[line], 0))
    _frame_legend(figure, frames)
    return figure


def _title(axes: Axes, cluster: _Cluster) -> None:
    """The major type with the purity, and the number of images."""
    name = "several types"
    if cluster.major is not None:
        name = f"{type_name(cluster.major)} ({cluster.hits / cluster.counted:.2f})"
    axes.set_title(name, loc="left", fontsize=7.5, pad=2)
    count = len(cluster.rows)
    images = f"{count} image{'s' if count > 1 else ''}"
    axes.set_title(images, loc="right", fontsize=6, color=FAINT, pad=2)


def _frame(label: str | None, major: str | None) -> tuple[str, dict[str, Any]]:
    """The meaning of a frame and its style; both empty for an image of the major type."""
    if label is None:
        return "several types at once, not counted", SEVERAL_TYPES
    return ("", {}) if label == major else ("not of the major type of the cluster", OTHER_TYPE)


def _place(
    axes: Axes, picture: NDArray[np.uint8], cell: tuple[int, int], frame: dict[str, Any]
) -> None:
    """A picture in the middle of its cell, which is a square of side 1."""
    from matplotlib.patches import Rectangle

    height, width = (0.9 * side / max(picture.shape[:2]) for side in picture.shape[:2])
    top, left = cell[0] + (1 - height) / 2, cell[1] + (1 - width) / 2
    axes.imshow(picture, extent=(left, left + width, top + height, top))
    if frame:
        axes.add_patch(Rectangle((left, top), width, height, fill=False, lw=1.6, **frame))


def _frame_legend(figure: Figure, frames: dict[str, dict[str, Any]]) -> None:
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Patch(fill=False, linewidth=1.6, label=meaning, **frame)
        for meaning, frame in frames.items()
    ]
    if handles:
        figure.legend(handles=handles, loc="lower center", ncols=len(handles))
