"""The data that the report's script needs: one compact JSON object, arrays as base64."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.clusters.kinds import STANDING_OUT_SHARE
from flawsort.clusters.placement import BORDERLINE_MARGIN
from flawsort.core.records import Floats, Ints
from flawsort.core.text import clean
from flawsort.embeddings.heat import NORMAL_GROUP_SHARE, NORMAL_PRECISION, colour_table
from flawsort.images.originals import aspect_of
from flawsort.outputs.exports.content import Content
from flawsort.outputs.web import k_span
from flawsort.runs.looking import Looking
from flawsort.runs.run import Run

MAX_DIMS = 32

MAX_HEAT_CELLS = 6_000_000
"""5,000 images of a 34 x 34 grid, about 8 MB. Above it, heat is stored for blocks of patches."""


@dataclass(frozen=True)
class ShownGroups:
    """The groups of a page as people left them. labels: (n_images,). regions: (n_regions,), the
    group of each, or -1. kinds: the ids of each image's groups, its own first. titles, normal: of
    the groups by id, and the ids of those without a flaw."""

    labels: NDArray[np.int64]
    regions: Sequence[int]
    kinds: Sequence[tuple[int, ...]]
    titles: Mapping[int, str]
    normal: Sequence[int]


def shown_groups(content: Content, rows: Ints) -> ShownGroups:
    """The groups of some images of a run. rows: ascending."""
    labels = content.labelling.labels[rows]
    places = np.flatnonzero(np.isin(content.run.region_rows, rows)).tolist()
    of_regions = [content.of_regions[place] for place in places]
    used = {*labels.tolist(), *(group for row in rows for group in content.kinds[row])}
    return ShownGroups(
        labels,
        [group if group in used else -1 for group in of_regions],
        [content.kinds[row] for row in rows],
        {group: clean(content.titles[group]) for group in sorted(used)},
        [group for group in content.labelling.with_role("normal") if group in used],
    )


def payload(
    run: Run,
    truth: list[str | None] | None = None,
    shown: ShownGroups | None = None,
    *,
    max_heat_cells: int = MAX_HEAT_CELLS,
) -> dict[str, Any]:
    """The data island: n images, their saved groups, thumbnails, heat, map, tree and vectors.
    shown: the groups as people left them, which are shown in place of the clusters.
    max_heat_cells: above it, heat is stored for blocks of patches."""
    table, n = run.table, len(run)
    labels = run.labels if shown is None else shown.labels
    saved = len(np.unique(labels))
    heat, grid = _heat_cells(run, max_heat_cells)
    vectors, of_regions = _reduced(run.embeddings, run.region_embeddings)
    advice = run.manifest["clusters"].get("advice") or {}
    return {
        "n": n,
        "k": k_span(n, saved),
        "names": [clean(name) for name in run.names],
        "cluster": labels.tolist(),
        "score": [_number(value) for value in table["score"]],
        "typicality": [_number(value) for value in table["typicality"]],
        "runnerUp": [int(value) for value in table["runner_up"]],
        "flags": [clean(value or "") for value in table["flags"]],
        "truth": None if truth is None else [None if t is None else clean(t) for t in truth],
        "aspect": [round(aspect_of(data), 4) for data in run.thumbnails],
        "thumbs": [base64.b64encode(data).decode("ascii") for data in run.thumbnails],
        "grid": list(grid),
        "closeUps": _close_ups(run),
        "heat": _pack(heat, "u1"),
        "colours": _pack(colour_table(), "u1"),
        "dims": int(vectors.shape[1]),
        "vectors": _pack(vectors, "<i2"),
        "regions": {**_regions(run, shown), "vectors": _pack(of_regions, "<i2")},
        "merges": _pack(run.linkage[:, :2], "<i4"),
        "heights": _pack(run.linkage[:, 2], "<f4"),
        "layout": _pack(np.rint(np.clip(run.layout, 0.0, 1.0) * 65535), "<u2"),
        "candidates": [_candidate(entry) for entry in advice.get("candidates") or []],
        "advised": {key: advice.get(key) for key in ("k", "low", "high")} if advice else None,
        "looksNormal": [int(normal) for normal in run.looks_normal],
        "normalGroupShare": NORMAL_GROUP_SHARE,
        "normalPrecision": str(NORMAL_PRECISION),
        "standingOutShare": STANDING_OUT_SHARE,
        "borderlineBelow": BORDERLINE_MARGIN,
        "reviewed": None if shown is None else _reviewed(shown),
    }


def island(data: dict[str, Any]) -> str:
    """`data` as JSON that is safe inside a script element, whatever the names contain."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _heat_cells(run: Run, most: int) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """Heat as bytes (n_images, cells) and the grid of the cells; padding is cold. most: the largest
    number of cells of all images."""
    heat, grid = run.patch_heat(), run.grid
    block = math.ceil(math.sqrt(heat.size / most))
    if block <= 1:
        return _as_bytes(heat), grid
    # The maximum of each block: a mean would hide small flaws.
    rows, columns = math.ceil(grid[0] / block), math.ceil(grid[1] / block)
    padding = ((0, 0), (0, rows * block - grid[0]), (0, columns * block - grid[1]))
    padded = np.pad(heat.reshape(-1, *grid), padding)
    blocks = padded.reshape(-1, rows, block, columns, block).max(axis=(2, 4))
    return _as_bytes(blocks.reshape(len(heat), -1)), (rows, columns)


def _reviewed(shown: ShownGroups) -> dict[str, Any]:
    """The groups by id, as people left them, and the kinds of each image."""
    return {
        "titles": {str(group): title for group, title in shown.titles.items()},
        "normal": list(shown.normal),
        "kinds": [list(kinds) for kinds in shown.kinds],
    }


def _regions(run: Run, shown: ShownGroups | None) -> dict[str, Any]:
    """The image of each region, its box in thousandths of the picture, the share of the picture
    that it covers, and the saved group that it resembles, or -1."""
    boxes = np.rint(run.outlines.boxes(run.grid) * 1000).astype(int)
    return {
        "image": run.region_rows.tolist(),
        "box": boxes.ravel().tolist(),
        "share": np.round(run.outlines.shares(run.grid), 6).tolist(),
        "cluster": [int(label) for label in (shown.regions if shown else run.regions["cluster"])],
    }


def _reduced(
    embeddings: Floats, regions: Floats
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Embeddings (n, dim) and those of regions, projected onto at most 32 principal axes of the
    former, as whole numbers in int16."""
    values = np.asarray(embeddings, dtype=np.float64)
    middle = values.mean(axis=0)
    centred = values - middle
    n, dim = centred.shape
    keep = max(1, min(MAX_DIMS, n, dim))
    if dim <= n:
        axes = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :keep]
    else:
        lengths, left = np.linalg.eigh(centred @ centred.T)
        axes = centred.T @ left[:, ::-1][:, :keep]
        axes /= np.sqrt(np.maximum(lengths[::-1][:keep], 1e-12))
    points = centred @ axes
    beside = (np.asarray(regions, np.float64).reshape(-1, dim) - middle) @ axes
    # The sign of an axis is arbitrary; fix it, so that the same run gives the same bytes.
    signs = np.sign(points[np.abs(points).argmax(axis=0), np.arange(keep)])
    signs = np.where(signs == 0, 1, signs)
    largest = max(float(np.abs(points).max(initial=0.0)), float(np.abs(beside).max(initial=0.0)))
    scale = signs * (32767 / largest if largest > 0 else 0)
    return np.rint(points * scale), np.rint(beside * scale)


def _close_ups(run: Run) -> dict[str, Any] | None:
    """The most unusual place of each image and what matches it, as JPEGs; the box of each in ten
    thousandths of the picture; and the names of the images with the matches. Empty where there is
    none; None in a run that has no such pictures."""
    if run.close_ups is None:
        return None
    looking, matches = Looking(run), run.matches or (b"",) * len(run)
    boxes = [looking.box(row, aspect_of(data)) for row, data in enumerate(run.thumbnails)]
    found = [looking.match(row) for row in range(len(run))]
    return {
        "pictures": [base64.b64encode(data).decode("ascii") for data in run.close_ups],
        "matches": [base64.b64encode(data).decode("ascii") for data in matches],
        "box": [round(10_000 * side) for box in boxes for side in box],
        "names": ["" if match is None else clean(match.name) for match in found],
        "normals": run.mode == "with normals",
    }


def _candidate(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: _number(entry[key]) for key in ("k", "stability", "gap") if key in entry}


def _number(value: Any) -> float | None:
    """Rounded to six digits; None for values that JSON cannot hold."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")


def _as_bytes(heat: Floats) -> NDArray[np.uint8]:
    return np.rint(heat * 255).astype(np.uint8)


def _pack(values: NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values.astype(dtype)).tobytes()).decode("ascii")
