"""Facts about made-up images, for the checks of flawsort.health: nothing is wrong with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from flawsort.embeddings.heat import HeatScale
from flawsort.health.facts import Facts, Filed
from flawsort.health.pictures import SIDE, Pictured

GRID = (20, 24)
N = 40


def made_facts(n: int = N, *, normals: int = 30, **changes: Any) -> Facts:
    """Two groups, well apart, half of the first with a flaw somewhere inside. changes: of fields
    of Facts, of Pictured or of Filed."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 2
    scores = rng.normal(0.0, 0.2, (n, GRID[0] * GRID[1]))
    for row in np.flatnonzero(labels == 1):
        scores[row, rng.integers(5, 15) * GRID[1] + rng.integers(5, 19)] = 3.0
    facts = Facts(
        names=tuple(f"{row:03d}.png" for row in range(n)),
        digests=tuple(f"{row:03d}" for row in range(n)),
        normal_digests=tuple(f"good {row}" for row in range(normals)) if normals else None,
        scores=scores,
        valid=None,
        grid=GRID,
        heat=HeatScale(1.0, 2.0, 1.5 if normals else None),
        image_scores=scores.max(axis=1),
        labels=labels,
        embeddings=np.eye(3)[labels] * 9 + rng.normal(0, 0.1, (n, 3)),
        linkage=np.zeros((n - 1, 4)),
        compared=True,
        pictured=Pictured(
            *(rng.normal(100, 9, n) for _ in range(5)),
            turned=rng.normal(0, 0.2, (n, 2)),
            background=np.zeros((n, SIDE, SIDE), bool),
        ),
        filed=Filed(
            *(rng.normal(1000, 9, n) for _ in range(3)), day=np.full(n, 7.0), folder=("",) * n
        ),
    )
    return changed(facts, **changes)


def changed(facts: Facts, **changes: Any) -> Facts:
    """The facts with other fields, wherever these belong."""
    for part in ("pictured", "filed"):
        record = getattr(facts, part)
        own = {name: changes.pop(name) for name in list(changes) if hasattr(record, name)}
        facts = replace(facts, **{part: replace(record, **own)})
    return replace(facts, **changes)
