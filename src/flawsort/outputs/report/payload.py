"""What the page's script needs of a run, packed small: one JSON object, arrays as base64."""

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
from flawsort.core.errors import RunError
from flawsort.core.records import Bools, Floats
from flawsort.embeddings.heat import (
    LOOKS_NORMAL_BELOW,
    NORMAL_GROUP_SHARE,
    HeatScale,
    colour_table,
    image_heat,
)
from flawsort.embeddings.regions import Outlines, mask_cells
from flawsort.runs.folder import Run

MAX_K = 40
MAX_DIMS = 32

MAX_HEAT_CELLS = 6_000_000
"""5,000 images of a 34 x 34 grid. Beyond it, heat is kept for blocks of patches: about 8 MB."""

COLUMNS = ("name", "cluster", "score", "typicality", "runner_up", "flags")


def payload(run: Run, truth: list[str | None] | None = None) -> dict[str, Any]:
    """The data island: n images, their saved groups, thumbnails, heat, map, tree and vectors."""
    check(run)
    table, clusters = run.table, run.manifest.get("clusters") or {}
    n, saved = len(table["name"]), len(set(table["cluster"]))
    scale = HeatScale(float(run.manifest["heat"]["low"]), float(run.manifest["heat"]["high"]))
    heat, grid = _heat_cells(run.scores, run.valid, _grid(run), scale)
    vectors, of_regions = _reduced(run.embeddings, run.region_embeddings)
    advice = clusters.get("advice") or {}
    return {
        "n": n,
        "k": {"saved": saved, "min": min(2, saved, n), "max": max(min(n, MAX_K), saved)},
        "names": [clean(name) for name in table["name"]],
        "cluster": [int(value) for value in table["cluster"]],
        "score": [_number(value) for value in table["score"]],
        "typicality": [_number(value) for value in table["typicality"]],
        "runnerUp": [int(value) for value in table["runner_up"]],
        "flags": [clean(value or "") for value in table["flags"]],
        "truth": None if truth is None else [None if t is None else clean(t) for t in truth],
        "aspect": [_aspect(data) for data in run.thumbnails],
        "thumbs": [base64.b64encode(data).decode("ascii") for data in run.thumbnails],
        "grid": list(grid),
        "heat": _pack(heat, "u1"),
        "peak": _pack(_as_bytes(image_heat(run.scores, scale, run.valid)), "u1"),
        "colours": _pack(colour_table(), "u1"),
        "dims": int(vectors.shape[1]),
        "vectors": _pack(vectors, "<i2"),
        "regions": {**_regions(run), "vectors": _pack(of_regions, "<i2")},
        "merges": _pack(run.linkage[:, :2], "<i4"),
        "heights": _pack(run.linkage[:, 2], "<f4"),
        "layout": _pack(np.rint(np.clip(run.layout, 0.0, 1.0) * 65535), "<u2"),
        "candidates": [_candidate(entry) for entry in advice.get("candidates") or []],
        "advised": {key: advice.get(key) for key in ("k", "low", "high")} if advice else None,
        # Only known-good images say what is normal.
        "looksNormalBelow": LOOKS_NORMAL_BELOW if run.manifest.get("mode") == "with normals" else 0,
        "normalGroupShare": NORMAL_GROUP_SHARE,
        "standingOutShare": STANDING_OUT_SHARE,
        "borderlineBelow": BORDERLINE_MARGIN,
    }


def island(data: dict[str, Any]) -> str:
    """`data` as JSON that may stand inside a script element, whatever the names hold."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def clean(value: object) -> str:
    """Text that can be written as UTF-8: a file name may hold bytes that are no text."""
    return str(value).encode("utf-8", "replace").decode("utf-8")


def check(run: Run) -> None:
    """Raise RunError where the parts of a run do not have the same number of images."""
    missing = [name for name in COLUMNS if name not in run.table]
    if missing:
        raise RunError(f"The table of the run lacks the columns {', '.join(missing)}.")
    n = len(run.table["name"])
    rows = {name: len(run.table[name]) for name in COLUMNS}
    rows |= {"scores": len(run.scores), "embeddings": len(run.embeddings)}
    rows |= {"layout": len(run.layout), "thumbnails": len(run.thumbnails)}
    rows["linkage (one row less)"] = len(run.linkage) + 1
    wrong = [f"{name} has {count}" for name, count in rows.items() if count != n]
    if not n or wrong:
        raise RunError(f"The run has {n} images, but {'; '.join(wrong) or 'needs at least 1'}.")
    rows_, columns = _grid(run)
    if run.scores.shape[1] != rows_ * columns:
        raise RunError(
            f"The run's grid is {rows_} x {columns}, but scores have {run.scores.shape[1]} patches."
        )


def _grid(run: Run) -> tuple[int, int]:
    rows, columns = run.manifest["grid"]
    return int(rows), int(columns)


def _heat_cells(
    scores: Floats, valid: Bools | None, grid: tuple[int, int], scale: HeatScale
) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """Heat as bytes (n_images, cells) and the grid of the cells; padding is cold."""
    heat = scale.normalise(scores)
    if valid is not None:
        heat = np.where(valid, heat, 0.0)
    block = math.ceil(math.sqrt(heat.size / MAX_HEAT_CELLS))
    if block <= 1:
        return _as_bytes(heat), grid
    # Hottest of each block: a mean would hide the small flaws.
    rows, columns = math.ceil(grid[0] / block), math.ceil(grid[1] / block)
    padding = ((0, 0), (0, rows * block - grid[0]), (0, columns * block - grid[1]))
    padded = np.pad(heat.reshape(-1, *grid), padding)
    blocks = padded.reshape(-1, rows, block, columns, block).max(axis=(2, 4))
    return _as_bytes(blocks.reshape(len(heat), -1)), (rows, columns)


def _regions(run: Run) -> dict[str, Any]:
    """Where the regions are: the image of each, its box on the picture in thousandths, and the
    saved group that it is like, or -1."""
    row_of = {name: row for row, name in enumerate(run.table["name"])}
    table = run.regions
    images = [row_of[name] for name in table["name"]]
    found = zip(images, table["score"], table["mask"], strict=True)
    outlines = Outlines.of([(image, score, mask_cells(mask)) for image, score, mask in found])
    boxes = np.rint(outlines.boxes(_grid(run)) * 1000).astype(int)
    return {
        "image": images,
        "box": boxes.ravel().tolist(),
        "cluster": [int(label) for label in table["cluster"]],
    }


def _reduced(
    embeddings: Floats, regions: Floats
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Embeddings (n, dim) and those of regions turned to the main axes of the former, at most 32,
    as whole numbers in int16."""
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
    # An axis may point either way; settle it, so that the same run gives the same bytes.
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
    """Six digits, or None for what JSON cannot hold."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")


def _as_bytes(heat: Floats) -> NDArray[np.uint8]:
    return np.rint(heat * 255).astype(np.uint8)


def _pack(values: NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values.astype(dtype)).tobytes()).decode("ascii")
