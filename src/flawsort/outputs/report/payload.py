"""The data that the report's script needs: one compact JSON object, arrays as base64."""

from __future__ import annotations

import base64
import io
import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from flawsort.clusters.kinds import STANDING_OUT_SHARE
from flawsort.clusters.placement import BORDERLINE_MARGIN
from flawsort.core.records import Floats
from flawsort.core.text import clean
from flawsort.embeddings.heat import NORMAL_GROUP_SHARE, colour_table
from flawsort.outputs.web import k_span
from flawsort.runs.run import Run

MAX_DIMS = 32

MAX_HEAT_CELLS = 6_000_000
"""5,000 images of a 34 x 34 grid, about 8 MB. Above it, heat is stored for blocks of patches."""


def payload(
    run: Run, truth: list[str | None] | None = None, *, max_heat_cells: int = MAX_HEAT_CELLS
) -> dict[str, Any]:
    """The data island: n images, their saved groups, thumbnails, heat, map, tree and vectors.
    max_heat_cells: above it, heat is stored for blocks of patches."""
    table, n, saved = run.table, len(run), len(np.unique(run.labels))
    heat, grid = _heat_cells(run, max_heat_cells)
    vectors, of_regions = _reduced(run.embeddings, run.region_embeddings)
    advice = run.manifest["clusters"].get("advice") or {}
    return {
        "n": n,
        "k": k_span(n, saved),
        "names": [clean(name) for name in run.names],
        "cluster": run.labels.tolist(),
        "score": [_number(value) for value in table["score"]],
        "typicality": [_number(value) for value in table["typicality"]],
        "runnerUp": [int(value) for value in table["runner_up"]],
        "flags": [clean(value or "") for value in table["flags"]],
        "truth": None if truth is None else [None if t is None else clean(t) for t in truth],
        "aspect": [_aspect(data) for data in run.thumbnails],
        "thumbs": [base64.b64encode(data).decode("ascii") for data in run.thumbnails],
        "grid": list(grid),
        "heat": _pack(heat, "u1"),
        "colours": _pack(colour_table(), "u1"),
        "dims": int(vectors.shape[1]),
        "vectors": _pack(vectors, "<i2"),
        "regions": {**_regions(run), "vectors": _pack(of_regions, "<i2")},
        "merges": _pack(run.linkage[:, :2], "<i4"),
        "heights": _pack(run.linkage[:, 2], "<f4"),
        "layout": _pack(np.rint(np.clip(run.layout, 0.0, 1.0) * 65535), "<u2"),
        "candidates": [_candidate(entry) for entry in advice.get("candidates") or []],
        "advised": {key: advice.get(key) for key in ("k", "low", "high")} if advice else None,
        "looksNormal": [int(normal) for normal in run.looks_normal],
        "normalGroupShare": NORMAL_GROUP_SHARE,
        "standingOutShare": STANDING_OUT_SHARE,
        "borderlineBelow": BORDERLINE_MARGIN,
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


def _regions(run: Run) -> dict[str, Any]:
    """The image of each region, its box in thousandths of the picture, and the saved group that it
    resembles, or -1."""
    boxes = np.rint(run.outlines.boxes(run.grid) * 1000).astype(int)
    return {
        "image": run.region_rows.tolist(),
        "box": boxes.ravel().tolist(),
        "cluster": [int(label) for label in run.regions["cluster"]],
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


def _aspect(thumbnail: bytes) -> float:
    """Width over height."""
    with Image.open(io.BytesIO(thumbnail)) as image:
        return round(image.width / image.height, 4)


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
