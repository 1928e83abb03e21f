"""Made-up runs for the report, and a parser of its page."""

from __future__ import annotations

import io
import json
from html.parser import HTMLParser
from typing import Any

import numpy as np
from PIL import Image
from scipy.cluster.hierarchy import fcluster, linkage

from flawsort.runs.folder import Run

HOSTILE = (
    "<script>alert(1)</script>",
    "</script ><img src=x onerror=alert(1)>.png",
    "\"quotes\" & 'more' `${N}` {{ k }}.png",
    "\U0001f529 bolt \u202e gnp.exe",
    "long-" + "x" * 300 + ".png",
    "bytes that are no text \udcff.png",
)
REGION_COLUMNS = (
    "name", "region", "cluster", "nearest", "confidence", "score", "heat", "x", "y", "width",
    "height", "mask",
)  # fmt: skip


def thumbnail(rng: np.random.Generator, size: tuple[int, int]) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, tuple(int(v) for v in rng.integers(0, 256, 3))).save(out, "JPEG")
    return out.getvalue()


def make_run(n: int = 40, k: int = 4, dim: int = 48) -> Run:
    """Blobs in `dim` dimensions, cut at k; the first blob is cold, the others have a hot patch."""
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
    manifest: dict[str, Any] = {
        "flawsort": "0.1.0", "mode": "with normals", "settings": {"glob": None, "temperature": 0.5},
        "backbone": {"name": "tiny", "sha256": "c0ffee", "licence": "Apache-2.0", "origin": "here",
                     "input_size": [64, 64], "dim": dim},
        "grid": [4, 5], "n_images": n, "n_normals": 7, "seed": 0,
        "clusters": {"n_clusters": k, "chosen": "auto", "advice": advice(k)},
        "heat": {"low": 0.1, "high": 1.0},
        "set_aside": [{"name": HOSTILE[0], "reason": "cut <short>", "kind": "normal"}],
        "duplicates": [[HOSTILE[1], "copy.png"]], "warnings": ["mind <b>this</b>"],
        "versions": {"numpy": "2"}, "timings": {"embed": 123.456},
    }  # fmt: skip
    regions = make_regions(names, cluster, scores)
    table: dict[str, list[Any]] = {
        "name": names, "path": names, "cluster": cluster, "kinds": kinds(names, cluster, regions),
        "score": scores.max(axis=1).tolist(),
        "distance": [0.5] * n, "typicality": rng.random(n).tolist(),
        "runner_up": [(c + 1) % len(order) for c in cluster],
        "flags": ["duplicate;odd"] + [""] * (n - 1),
    }  # fmt: skip
    thumbs = tuple(thumbnail(rng, (16, 8 if i % 2 else 24)) for i in range(n))
    return Run(
        manifest=manifest, table=table, regions=regions,
        region_embeddings=np.random.default_rng(n).random((len(regions["name"]), dim)),
        scores=scores, valid=None, weights=scores,
        embeddings=embeddings, linkage=tree, layout=rng.random((n, 2)), reference=None,
        thumbnails=thumbs,
    )  # fmt: skip


def make_regions(
    names: list[str], cluster: list[int], scores: np.ndarray[Any, Any]
) -> dict[str, list[Any]]:
    """One where the hot patch is, like the image's group. Every third such image has another of
    two patches, like the next group, or like none where that would be the fourth."""
    table: dict[str, list[Any]] = {name: [] for name in REGION_COLUMNS}
    hot = [row for row in range(len(names)) if scores[row, 7] == 1.0]
    for place, row in enumerate(hot):
        nearest = (cluster[row] + 1) % (max(cluster) + 1)
        found = [(cluster[row], cluster[row], 1.0, 0.4, 0.25, 0.2, 0.25, "7")]
        if place % 3 == 0:
            label = -1 if nearest == 3 else nearest
            found.append((label, nearest, 0.4, 0.0, 0.75, 0.4, 0.25, "15-16"))
        for region, (label, near, heat, *box, mask) in enumerate(found):
            score = 0.1 + 0.9 * heat
            values = (names[row], region, label, near, 0.5 if label >= 0 else 0.0, score, heat)
            for column, value in zip(REGION_COLUMNS, (*values, *box, mask), strict=True):
                table[column].append(value)
    return table


def kinds(names: list[str], cluster: list[int], regions: dict[str, list[Any]]) -> list[str]:
    """The group of each image, and those of its regions."""
    shown = {name: [group] for name, group in zip(names, cluster, strict=True)}
    for name, group in zip(regions["name"], regions["cluster"], strict=True):
        if group >= 0 and group not in shown[name]:
            shown[name].append(group)
    return [";".join(map(str, shown[name])) for name in names]


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


class Page(HTMLParser):
    """The page as a parser sees it: tags closed in order, attributes, text by element."""

    VOID = frozenset({"meta", "input", "img", "br", "link"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(html)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.stack[-1] if self.stack else "", data))

    def data(self) -> dict[str, Any]:
        scripts = [text for tag, text in self.texts if tag == "script"]
        assert len(scripts) == 2
        parsed: dict[str, Any] = json.loads(scripts[0])
        return parsed

    def words(self) -> str:
        return " ".join(
            "".join(t for tag, t in self.texts if tag not in ("script", "style")).split()
        )
