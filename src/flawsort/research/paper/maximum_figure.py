"""Figure 12: why the mean over the other images is taken, and not the maximum."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flawsort.core.records import Ints
from flawsort.embeddings.method import Method
from flawsort.research.paper.example_figures import LARGE, MARK, axes_at, heat_of, overlay
from flawsort.research.paper.layout import DPI, FAINT, house_style, set_name, write
from flawsort.research.paper.methods import PAPER, weights_of
from flawsort.research.paper.shared import PreparedSet
from flawsort.scores.nearest import nearest_in_bank

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The images that lack the pattern most.
OTHERS = 3
_READING = (
    "The frame marks the normal patch that gains most weight when the maximum over the other "
    "images is taken instead of the mean.\nThe images on the right show nothing like it: the "
    "distances are to their most similar patch."
)


def draw_maximum(
    prepared: PreparedSet, folder: Path, *, method: Method = PAPER, stem: str = "", dpi: int = DPI
) -> list[Path]:
    """A normal pattern that the maximum over the other images takes for unusual (Figure 12).

    Writes <stem>.svg and .png to the folder, by default maximum-<set>. From left to right: an image
    with the pattern, its weights by the maximum and by the mean, and the images that lack the
    pattern most. dpi: of the PNG file.
    """
    title = f"The maximum over the other images: {set_name(prepared.task.name)}"
    with house_style():
        image, patch = misled_most(prepared, method)
        figure = _drawn(prepared, image, patch, method, title)
        name = stem or f"maximum-{prepared.task.name}"
        return write(figure, folder, name, title, dpi=dpi)


def misled_most(prepared: PreparedSet, method: Method = PAPER) -> tuple[int, int]:
    """The image and its patch, which no mask marks, whose weight grows most if the maximum over the
    other images is taken instead of the mean."""
    gained = weights_of(prepared, "wa-max", method) - weights_of(prepared, "wa", method)
    gained = np.where(prepared.mask_shares > 0, -np.inf, gained)
    image, patch = np.unravel_index(int(gained.argmax()), gained.shape)
    return int(image), int(patch)


def farthest(prepared: PreparedSet, image: int, patch: int) -> list[tuple[int, float]]:
    """The other images, and their distances to this patch: of their most similar one. The farthest
    first."""
    bags = prepared.bags
    own = bags.patches[image][patch : patch + 1]
    others: Ints = np.delete(np.arange(len(bags)), image)
    far = [float(nearest_in_bank(own, bags.valid_patches(int(row))).distances[0]) for row in others]
    order = np.argsort(-np.array(far), kind="stable")
    return [(int(others[place]), far[place]) for place in order]


def _drawn(prepared: PreparedSet, image: int, patch: int, method: Method, title: str) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    others = farthest(prepared, image, patch)[:OTHERS]
    heads = ["Image", "Maximum", "Mean", *[f"lacks it ({far:.2f})" for _, far in others]]
    shown = [image, image, image, *[row for row, _ in others]]
    step, top = 1.55, 0.5
    size = (step * len(heads) + 0.1, top + step + 0.35)
    figure = Figure(size)
    figure.text(0.5, 1 - 0.16 / size[1], title, ha="center", va="center", fontsize=9.5)
    grid = prepared.bags.grid
    weights = np.stack([weights_of(prepared, row, method)[image] for row in ("wa-max", "wa")])
    heat, _ = heat_of(weights)
    for at, (head, row) in enumerate(zip(heads, shown, strict=True)):
        picture = prepared.picture(row, LARGE)
        place = axes_at(figure, 0.08 + step * at, top, step - 0.08, step - 0.08)
        place.imshow(picture, extent=(0, picture.shape[1], picture.shape[0], 0))
        place.set_title(head)
        if at in (1, 2):
            overlay(place, heat[at - 1].reshape(grid))
        if row == image:
            high, wide = picture.shape[0] / grid[0], picture.shape[1] / grid[1]
            down, across = divmod(patch, grid[1])
            look: dict[str, Any] = {"fill": False, "clip_on": False, "zorder": 3}
            for colour, thick in (("black", 2.6), (MARK, 1.3)):
                corner = (across * wide, down * high)
                frame = Rectangle(corner, wide, high, edgecolor=colour, linewidth=thick, **look)
                place.add_patch(frame)
    figure.text(0.5, 0.05 / size[1], _READING, ha="center", fontsize=6.5, color=FAINT)
    return figure
