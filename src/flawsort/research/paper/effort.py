"""The comparisons behind a table: how long those take that are still to be made, and what an
approximate search found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from flawsort.backbones import Backbone
from flawsort.backbones.patches import patch_embeddings
from flawsort.fitting.foresight import foretell
from flawsort.research.paper.measurements import Job
from flawsort.research.paper.methods import FROM_PEERS
from flawsort.research.paper.protocol import Task
from flawsort.research.paper.shared import PreparedSet
from flawsort.scores.nearest import search_flop
from flawsort.scores.recall import together


def foretold(prepared: Sequence[PreparedSet], jobs: Sequence[Job]) -> str:
    """A sentence about how long the exact comparisons take; "" if they take moments or are on the
    disk."""
    pairs = [missing_pairs(one, jobs) for one in prepared]
    if not any(pairs):
        return ""
    n_patches, dim = shape_of(prepared[0].backbone)
    flop = sum(sum(one.values()) for one in pairs) * search_flop(n_patches, n_patches, dim)
    searched = any(name.startswith("normals") for one in pairs for name in one)
    return foretell(prepared[0].engine, [(flop, (n_patches, dim))], approximate=searched)


def missing_pairs(prepared: PreparedSet, jobs: Iterable[Job]) -> dict[str, float]:
    """The pairs of images that each exact comparison of a set takes, by its name, without those
    that are on the disk."""
    found: dict[str, float] = {}
    for job in jobs:
        if job.training is None and not job.lacks(prepared.task):
            found |= _pairs(prepared, job)
    return {name: pairs for name, pairs in found.items() if not prepared.has(name)}


def shape_of(backbone: Backbone) -> tuple[int, int]:
    """(n_patches, dim) of a bag."""
    info = backbone.info
    maps = backbone.feature_maps(np.zeros((1, 3, *info.input_size), np.float32))
    patches, _ = patch_embeddings(maps, info.pooling_kernel, info.grid)
    return patches.shape[1], patches.shape[2]


def search_notes(prepared: Sequence[PreparedSet], jobs: Sequence[Job]) -> list[str]:
    """How good the search in inverted lists was in each set, if there was one."""
    searches = {
        (job.share, seed) for job in jobs if job.row == "wa-semi" for seed in range(_n_draws(job))
    }
    found = []
    for one in prepared:
        recalls = [one.recall_of_normals(share, seed) for share, seed in sorted(searches)]
        whole = together(recall for recall in recalls if recall is not None)
        if whole is not None:
            found.append(f"{one.task.name} {whole.percent} of {whole.of:,}")
    if not found:
        return []
    return [
        "Normals were searched approximately, in inverted lists. The highest-scoring patches whose "
        f"nearest one was found: {', '.join(found)}."
    ]


def _pairs(prepared: PreparedSet, job: Job) -> dict[str, float]:
    n, n_normals = len(prepared.task.truth), _n_normals(prepared.task)
    all_pairs = n * (n - 1) / 2
    if job.row == "mean-mean":
        return {"mean-distances": all_pairs}
    if job.row == "wa-extra":
        return {"peers-with-normals": all_pairs + n * n_normals}
    if job.row == "wa-semi" and prepared.exact:
        part = n * max(1, round(job.share * n_normals))
        return {prepared.normals_name(job.share, seed): part for seed in range(_n_draws(job))}
    if job.row not in FROM_PEERS:
        return {}
    again = job.row == "wa" and job.measure == "subsets"
    return {"peers": all_pairs} | ({f"subsets-{job.n_seeds}": all_pairs} if again else {})


def _n_draws(job: Job) -> int:
    """Of the normals; random subsets of the images share one search."""
    return job.n_draws if job.share < 1 else 1


def _n_normals(task: Task) -> int:
    return 0 if task.data.normals is None else len(task.data.normals)
