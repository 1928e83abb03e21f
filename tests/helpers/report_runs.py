"""Made-up runs for the report."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image
from scipy.cluster.hierarchy import fcluster, linkage

from flawsort.runs.run import Run
from helpers.runs import MadeRegion, build_run

HOSTILE = (
    "<script>alert(1)</script>",
    "</script ><img src=x onerror=alert(1)>.png",
    "\"quotes\" & 'more' `${N}` {{ k }}.png",
    "\U0001f529 bolt \u202e gnp.exe",
    "long-" + "x" * 300 + ".png",
    "bytes that are no text \udcff.png",
)


def thumbnail(rng: np.random.Generator, size: tuple[int, int]) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, tuple(int(v) for v in rng.integers(0, 256, 3))).save(out, "JPEG")
    return out.getvalue()


def make_run(n: int = 40, k: int = 4, dim: int = 48, *, flagged: bool = True) -> Run:
    """Blobs in `dim` dimensions, cut at k; the first blob is cold, the others have a hot patch.
    flagged: the images of the first blob look normal."""
    rng = np.random.default_rng(n)
    kind = rng.integers(0, k, n)
    embeddings = 3.0 * np.eye(dim)[kind] + 0.2 * rng.standard_normal((n, dim))
    tree = linkage(embeddings, "ward") if n > 1 else np.zeros((0, 4))
    raw = fcluster(tree, k, "maxclust") if n > 1 else np.ones(n, int)
    order = sorted(set(raw), key=lambda c: (-(raw == c).sum(), int(np.argmax(raw == c))))
    cluster = [order.index(c) for c in raw]
    scores = 0.1 * rng.random((n, 20))
    scores[np.array(kind) > 0, 7] = 1.0
    names = [HOSTILE[i] if i < len(HOSTILE) else f"part-{i:04d}.png" for i in range(n)]
    regions = make_regions(cluster, scores)
    flags = ["looks-normal" if flagged and one == 0 else "" for one in kind]
    flags[0] = ";".join(filter(None, ["duplicate;odd", flags[0]]))
    thumbs = tuple(thumbnail(rng, (16, 8 if i % 2 else 24)) for i in range(n))
    return build_run(
        cluster, names=names, regions=regions, dim=dim, scores=scores, embeddings=embeddings,
        linkage=tree, thumbnails=thumbs,
        region_embeddings=np.random.default_rng(n).random((len(regions), dim)),
        table={"typicality": rng.random(n).tolist(),
               "flags": flags},
        manifest={
            "clusters": {"n_clusters": k, "chosen": "auto", "advice": advice(k)},
            "heat": {"low": 0.1, "high": 1.0},
            "set_aside": [{"name": HOSTILE[0], "reason": "cut <short>", "kind": "normal"}],
            "duplicates": [[HOSTILE[1], "copy.png"]], "warnings": ["mind <b>this</b>"],
        },
    )  # fmt: skip


def make_regions(cluster: list[int], scores: np.ndarray[Any, Any]) -> list[MadeRegion]:
    """One where the hot patch is, like the image's group. Every third such image has another of
    two patches, like the next group, or like none where that would be the fourth."""
    found = []
    for place, row in enumerate(np.flatnonzero(scores[:, 7] == 1.0).tolist()):
        own, nearest = cluster[row], (cluster[row] + 1) % (max(cluster) + 1)
        found.append(MadeRegion(row, own, "7", 1.0, 1.0, box=(0.4, 0.25, 0.2, 0.25)))
        if place % 3 == 0:
            label, confidence = (-1, 0.0) if nearest == 3 else (nearest, 0.5)
            box = (0.0, 0.75, 0.4, 0.25)
            found.append(MadeRegion(row, label, "15-16", 0.4, 0.46, confidence, nearest, box))
    return found


def advice(k: int) -> dict[str, Any]:
    candidates = [{"k": j, "stability": 0.5, "gap": 0.1, "score": 1.0} for j in range(2, 9)]
    return {"k": k, "low": k - 1, "high": k + 1, "ambiguous": False, "reason": "Clear.",
            "candidates": candidates}  # fmt: skip


def make_evaluation(run: Run) -> dict[str, Any]:
    n = len(run.table["name"])
    return {
        "nmi": 0.9123, "ari": 0.8, "f1": 0.7, "f1_micro": 0.75, "purity": 0.95,
        "n_evaluated": n - 1, "excluded": ["mixed<i>"], "true_k": 2, "clusters": [0, 1],
        "classes": ["good", "<dent>"],
        "confusion": [[11, 0], [3, 17]], "truth": [None, *["<dent>"] * (n - 1)],
    }  # fmt: skip
