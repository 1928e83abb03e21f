"""The one builder of made-up runs: every part has a value, and any of them can be given."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flawsort import View
from flawsort.core.tables import Table
from flawsort.runs.run import Run
from flawsort.runs.tables import REGIONS

GRID = (4, 5)


@dataclass(frozen=True)
class MadeRegion:
    """A region of an image. row: of the image. cluster: that it is like, or -1. box: left, top,
    width, height in fractions. nearest: the cluster itself if not given. match: the image whose
    place matches best, and how many patches down and across it lies there."""

    row: int
    cluster: int
    mask: str
    heat: float = 0.8
    score: float = 0.9
    confidence: float = 0.5
    nearest: int | None = None
    box: tuple[float, float, float, float] = (0.1, 0.2, 0.3, 0.4)
    match: tuple[str | None, int | None, int | None] = (None, None, None)


def build_run(
    clusters: Sequence[int],
    *,
    names: Sequence[str] | None = None,
    regions: Sequence[MadeRegion] = (),
    view: View | None = None,
    dim: int = 3,
    table: Table | None = None,
    manifest: dict[str, Any] | None = None,
    **parts: Any,
) -> Run:
    """A run of images in these clusters. table, manifest: columns and keys in the place of those
    made up here. parts: other parts of the run. The same arguments give the same run."""
    n, k, view = len(clusters), max(clusters) + 1, view or View()
    names = names or [f"part-{row:04d}.png" for row in range(n)]
    rng = np.random.default_rng(n)
    scores = parts.get("scores", rng.random((n, GRID[0] * GRID[1])))
    embeddings = 4.0 * np.eye(dim)[np.array(clusters) % dim] + rng.random((n, dim))
    made = {
        "region_embeddings": np.zeros((len(regions), dim), np.float32),
        "scores": scores,
        "valid": None,
        "weights": np.full(scores.shape, 1 / scores.shape[1], np.float32),
        "embeddings": embeddings,
        "linkage": chain(n),
        "layout": rng.random((n, 2)),
        "reference": None,
        "thumbnails": (b"",) * n,
        "mask": view.mask_bytes(),
    }
    columns = images_table(names, clusters, scores, regions) | (table or {})
    described = manifest_of(n, k, view, dim) | (manifest or {})
    return Run(described, columns, regions_table(names, regions), **(made | parts))


def chain(n: int) -> np.ndarray[Any, Any]:
    """(n - 1, 4): a tree in which one image after the other joins the first."""
    steps = np.arange(n - 1)
    return np.stack([steps + 1, np.where(steps, n + steps - 1, 0), steps, steps + 2], axis=1) * 1.0


def manifest_of(n: int, k: int, view: View, dim: int) -> dict[str, Any]:
    return {
        "format": {"name": "flawsort-run", "version": 4}, "flawsort": "0.1.0",
        "mode": "with normals", "n_images": n, "n_normals": 7, "seed": 0, "grid": list(GRID),
        "settings": {"glob": None, "temperature": 0.5},
        "backbone": {"name": "tiny", "sha256": "c0ffee", "licence": "Apache-2.0", "origin": "here",
                     "input_size": [64, 80], "dim": dim},
        "view": view.describe(), "clusters": {"n_clusters": k, "chosen": "given", "advice": None},
        "heat": {"low": 0.2, "high": 1.0}, "set_aside": [], "duplicates": [], "warnings": [],
        "versions": {"numpy": "2"}, "timings": {"embed": 123.456},
    }  # fmt: skip


def images_table(
    names: Sequence[str],
    clusters: Sequence[int],
    scores: np.ndarray[Any, Any],
    regions: Sequence[MadeRegion],
) -> Table:
    """The kinds of an image are its cluster and those of its regions."""
    rng = np.random.default_rng(1)
    n, k = len(clusters), max(clusters) + 1
    kinds = [[cluster] for cluster in clusters]
    for region in regions:
        if region.cluster >= 0 and region.cluster not in kinds[region.row]:
            kinds[region.row].append(region.cluster)
    return {
        "name": list(names), "path": list(names),
        "sha256": [hashlib.sha256(name.encode(errors="replace")).hexdigest() for name in names],
        "group": [f"Group {cluster}" for cluster in clusters],
        "probability": [None] * n, "decided": [False] * n,
        "cluster": list(clusters), "kinds": [";".join(map(str, some)) for some in kinds],
        "score": scores.max(axis=1).tolist(), "distance": rng.random(n).tolist(),
        "typicality": rng.random(n).tolist(), "runner_up": [(c + 1) % k for c in clusters],
        "runner_up_distance": rng.random(n).tolist(), "flags": [""] * n,
        "match": [None] * n, "match_down": [None] * n, "match_across": [None] * n,
    }  # fmt: skip


def regions_table(names: Sequence[str], regions: Sequence[MadeRegion]) -> Table:
    """The regions of an image are numbered in the order in which they are given."""
    table: Table = {column.name: [] for column in REGIONS}
    numbers = [[one.row for one in regions[:at]].count(of.row) for at, of in enumerate(regions)]
    for number, region in zip(numbers, regions, strict=True):
        nearest = max(region.cluster, 0) if region.nearest is None else region.nearest
        values = (
            names[region.row], number, region.cluster, nearest, region.confidence, region.score,
            region.heat, *region.box, region.mask, *region.match,
        )  # fmt: skip
        for column, value in zip(table, values, strict=True):
            table[column].append(value)
    return table
