"""What an approximate comparison finds on the highest-scoring patches, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from flawsort.core.records import Bags
from flawsort.scores.engines import CpuEngine
from flawsort.scores.recall import HIGHEST, IMAGES, Recall, sample_images, together
from flawsort.scores.reference import NormalReference, PeerReference, compare_with_peers
from helpers.bags import Array, unit_vectors
from helpers.oracles import naive_nearest, naive_scores

N, N_PATCHES, DIM = 12, 40, 24


def made_bags(n: int = N, *, seed: int = 0, masked: bool = False) -> Bags:
    patches = unit_vectors(n, N_PATCHES, DIM, seed=seed, dtype=np.float16)
    valid = None
    if masked:
        valid = np.random.default_rng(seed).random((n, N_PATCHES)) < 0.5
        valid[0] = False
        valid[0, :3] = True  # fewer than are looked at
    return Bags(patches, (5, 8), valid)


def highest(scores: Array, valid: Array | None) -> list[int]:
    """The highest-scoring valid patches of an image."""
    there = range(N_PATCHES) if valid is None else np.flatnonzero(valid).tolist()
    return sorted(there, key=lambda patch: (-scores[patch], patch))[:HIGHEST]


@pytest.mark.parametrize("masked", [False, True])
def test_lists_find_as_much_as_loops_say(masked: bool) -> None:
    bags, normals = made_bags(masked=masked), made_bags(60, seed=1)
    reference = NormalReference.from_bags(normals, exact=False)
    found = reference.compare(bags)
    recall = found.recall(5)
    bank = normals.patches.reshape(-1, DIM)
    rows = sample_images(N, 5)
    assert len(rows) == IMAGES
    right = of = 0
    for row in rows:
        chosen = highest(found.scores[row], None if bags.valid is None else bags.valid[row])
        known, _ = naive_nearest(bags.patches[row, chosen], bank)
        of += len(chosen)
        right += int((found.scores[row, chosen] <= known + 1e-4).sum())
    assert recall == Recall(right, of, IMAGES)
    assert of == (73 if masked and 0 in rows else 80)
    assert 0.3 < right / of < 0.97  # random patches are hard to find
    assert reference.compare(bags).recall(5) == recall


def test_an_exact_search_has_nothing_to_measure() -> None:
    exact = NormalReference.from_bags(made_bags(3, seed=1), exact=True, engine=CpuEngine("int8"))
    assert exact.compare(made_bags()).recall(0) is None
    comparison, peers = compare_with_peers(made_bags(), n_peers="all")
    assert comparison.recall(0) is None
    assert peers.compare(made_bags(3, seed=2)).recall(0) is None


@pytest.mark.parametrize("n_peers", ["all", 5])
@pytest.mark.parametrize("masked", [False, True])
def test_eight_bits_keep_as_much_as_loops_say(n_peers: object, masked: bool) -> None:
    bags = made_bags(masked=masked)
    comparison, _ = compare_with_peers(
        bags,
        n_peers=n_peers,  # type: ignore[arg-type]
        engine=CpuEngine("int8"),
        random_state=3,
    )
    peers = np.random.default_rng(3).permutation(N)[: N if n_peers == "all" else 5]
    known = naive_scores(bags.patches, sorted(peers.tolist()))
    right = of = 0
    for row in sample_images(N, 4):
        valid = None if bags.valid is None else bags.valid[row]
        mine, best = highest(comparison.scores[row], valid), highest(known[row], valid)
        right, of = right + len(set(mine) & set(best)), of + len(mine)
    recall = comparison.recall(4)
    assert recall is not None
    assert (recall.of, recall.n_images, recall.what) == (of, IMAGES, "highest")
    assert abs(recall.right - right) <= 1  # two scores may be equal but for rounding
    assert 0.8 < right / of <= 1


def test_a_sample_of_peers_in_eight_bits() -> None:
    bags = made_bags()
    peers = PeerReference(bags.patches[:7], 0.5, engine=CpuEngine("int8"))
    itself = np.where(np.arange(N) < 7, np.arange(N), -1)
    recall = peers.compare(bags, self_rows=itself).recall(0)
    exact = PeerReference(bags.patches[:7], 0.5).compare(bags, self_rows=itself).scores
    rounded = peers.compare(bags, self_rows=itself).scores
    right = sum(
        len(set(highest(rounded[row], None)) & set(highest(exact[row], None)))
        for row in sample_images(N, 0)
    )
    assert recall is not None
    assert abs(recall.right - right) <= 1
    assert recall.of == 80


def test_in_words() -> None:
    nearest = Recall(1234, 1500, 8)
    assert str(nearest) == (
        "the nearest was found for 82.3% of the 1,500 highest-scoring patches of 8 images"
    )
    assert str(Recall(10, 10, 1, "highest")) == (
        "100% of the 10 highest-scoring patches of 1 image are the highest in single precision too"
    )
    assert Recall(9999, 10000, 8).percent == "99.9%"  # not all
    assert together([]) is None
    assert together([nearest, Recall(1, 10, 3)]) == Recall(1235, 1510, 8)
