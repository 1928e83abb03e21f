"""Places are recognised by what lies around them, in a bank of normals and among peers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flawsort.core.records import Bags
from flawsort.scores import places
from flawsort.scores.places import (
    AROUND,
    SPREAD,
    BankPlaces,
    match_among_peers,
    match_in_bank,
    recognised_by,
)
from flawsort.scores.reference import NormalReference, compare_with_peers, restore_reference
from helpers.bags import Array, unit_vectors

GRID, DIM = (12, 16), 24


def textures(n: int, *, seed: int = 0) -> Array:
    """(n, n_patches, dim): images without any likeness, each patch unlike every other."""
    return unit_vectors(n, GRID[0] * GRID[1], DIM, seed=seed, dtype=np.float32)


def shown_in(image: Array, box: tuple[int, int, int, int], down: int, across: int) -> Array:
    """An image that shows, inside a larger box around this one, what another image shows `down`
    and `across` patches away; elsewhere it is like nothing."""
    own = textures(1, seed=99)[0].reshape(*GRID, DIM).copy()
    other = image.reshape(*GRID, DIM)
    top, left, bottom, right = box[0] - AROUND, box[1] - AROUND, box[2] + AROUND, box[3] + AROUND
    rows = np.arange(max(top, 0), min(bottom, GRID[0]))
    columns = np.arange(max(left, 0), min(right, GRID[1]))
    own[np.ix_(rows, columns)] = other[np.ix_(rows + down, columns + across)]
    # The unusual place itself is like nothing that the reference shows.
    own[box[0] : box[2], box[1] : box[3]] = textures(1, seed=98)[0, 0]
    flat: Array = own.reshape(-1, DIM)
    return flat


def bags_of(*images: Array, **others: Any) -> Bags:
    return Bags(np.stack(images), GRID, **others)


def in_normals(bags: Bags, normals: Array, boxes: list[tuple[int, ...]], **options: Any) -> Array:
    known = Bags(normals.astype(np.float32), GRID)
    reference = NormalReference.from_bags(known, **options)
    comparison = reference.compare(bags)
    found: Array = comparison.match(np.arange(len(boxes)), np.array(boxes), None)
    return found


BOXES = [(4, 5, 6, 8), (0, 0, 1, 1), (11, 15, 12, 16), (4, 3, 8, 9)]
MOVES = [(2, -1), (3, 4), (-5, -6), (1, 2)]


@pytest.mark.parametrize(("box", "move"), list(zip(BOXES, MOVES, strict=True)))
@pytest.mark.parametrize("exact", [True, False])
def test_the_place_is_found_in_the_normals(
    box: tuple[int, int, int, int], move: tuple[int, int], exact: bool
) -> None:
    normals = textures(5)
    bags = bags_of(shown_in(normals[3], box, *move))
    assert in_normals(bags, normals, [box], exact=exact).tolist() == [[3, *move]]


@pytest.mark.parametrize(("box", "move"), list(zip(BOXES, MOVES, strict=True)))
def test_the_place_is_found_among_peers(
    box: tuple[int, int, int, int], move: tuple[int, int]
) -> None:
    peers = textures(5)
    bags = bags_of(shown_in(peers[3], box, *move))
    match = match_among_peers(bags, peers, np.array([-1]))
    assert match(np.array([0]), np.array([box]), None).tolist() == [[3, *move]]


def test_it_is_the_place_that_a_look_at_every_place_finds() -> None:
    """With noise, as an exhaustive search by the same patches finds it."""
    rng, box = np.random.default_rng(3), (4, 5, 6, 8)
    normals = textures(4)
    image = shown_in(normals[1], box, 2, 3)
    image = image + 0.1 * rng.standard_normal(image.shape).astype(np.float32)
    image /= np.linalg.norm(image, axis=-1, keepdims=True)
    at = recognised_by(np.array(box), GRID)
    queries = image.reshape(*GRID, DIM)[at[:, 0], at[:, 1]]
    best, found = -np.inf, (-1, 0, 0)
    for number, normal in enumerate(normals.reshape(-1, *GRID, DIM)):
        for down in range(-at[:, 0].min(), GRID[0] - at[:, 0].max()):
            for across in range(-at[:, 1].min(), GRID[1] - at[:, 1].max()):
                there = normal[at[:, 0] + down, at[:, 1] + across]
                value = float((queries * there).sum(axis=1).mean())
                if value > best:
                    best, found = value, (number, down, across)
    assert found == (1, 2, 3)
    assert tuple(in_normals(bags_of(image), normals, [box])[0]) == found


def test_the_flaw_itself_is_left_out() -> None:
    """Another image with the same flaw, elsewhere, does not match; the same surroundings do."""
    box = (4, 5, 6, 8)
    normals = textures(3)
    image = shown_in(normals[1], box, 0, 0)
    normals = normals.copy()
    flawed = normals[2].reshape(*GRID, DIM)
    flawed[8:10, 5:8] = image.reshape(*GRID, DIM)[4:6, 5:8]
    assert in_normals(bags_of(image), normals, [box]).tolist() == [[1, 0, 0]]


def test_where_all_places_are_alike_it_is_the_same_place() -> None:
    plain = np.tile(textures(1)[0, :1], (3, GRID[0] * GRID[1], 1))
    found = in_normals(bags_of(plain[0], plain[0]), plain, [(2, 3, 4, 5), (9, 1, 10, 2)])
    assert found[:, 1:].tolist() == [[0, 0], [0, 0]]
    match = match_among_peers(bags_of(plain[0]), plain, np.array([1]))
    (peer,) = match(np.array([0]), np.array([(2, 3, 4, 5)]), None)
    assert peer[0] != 1
    assert peer[1:].tolist() == [0, 0]


def test_a_place_as_large_as_the_image_matches_the_same_place() -> None:
    normals = textures(4)
    found = in_normals(bags_of(normals[2]), normals, [(0, 0, *GRID)])
    assert found.tolist() == [[2, 0, 0]]


def test_peers_that_are_unusual_there_do_not_match() -> None:
    box, peers = (4, 5, 6, 8), textures(4)
    image = shown_in(peers[3], box, 0, 0)
    peers = peers.copy()
    second = peers[1].reshape(*GRID, DIM)
    second[:] = peers[3].reshape(*GRID, DIM)  # nearly as good
    second += 0.2 * np.random.default_rng(0).standard_normal(second.shape).astype(np.float32)
    second /= np.linalg.norm(second, axis=-1, keepdims=True)
    match = match_among_peers(bags_of(image), peers, np.array([-1]))
    one, of = np.array([0]), np.array([box])
    hot = np.zeros((4, GRID[0] * GRID[1]), bool)
    assert match(one, of, hot).tolist() == [[3, 0, 0]]
    hot[3].reshape(GRID)[5, 6] = True
    assert match(one, of, hot).tolist() == [[1, 0, 0]]
    hot[3] = False
    hot[3].reshape(GRID)[7, 6] = True  # beside the place
    assert match(one, of, hot).tolist() == [[3, 0, 0]]
    assert match(one, of, np.ones_like(hot)).tolist() == [[3, 0, 0]]  # no peer is better


def test_an_image_is_not_its_own_peer() -> None:
    peers = textures(3)
    bags = bags_of(*peers)
    rows, boxes = np.arange(3), np.tile([4, 5, 6, 8], (3, 1))
    own = match_among_peers(bags, peers, np.full(3, -1))(rows, boxes, None)
    assert own.tolist() == [[row, 0, 0] for row in range(3)]
    others = match_among_peers(bags, peers, np.arange(3))(rows, boxes, None)
    assert all(one != row for row, one in enumerate(others[:, 0]))
    alone = match_among_peers(bags_of(peers[0]), peers[:1], np.array([0]))
    assert alone(np.array([0]), boxes[:1], None).tolist() == [[-1, 0, 0]]
    comparison, reference = compare_with_peers(bags)
    assert reference.rows.tolist() == [0, 1, 2]
    assert comparison.match(rows, boxes, None).tolist() == others.tolist()


def test_only_some_peers_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "PEERS_LOOKED_AT", 2)
    peers = textures(4)
    match = match_among_peers(bags_of(peers[2], peers[2]), peers, np.array([0, -1]))
    found = match(np.arange(2), np.tile([4, 5, 6, 8], (2, 1)), None)
    assert found[0].tolist() == [2, 0, 0]  # itself is none of the two
    assert found[1, 0] in (0, 1)


def test_in_a_photo_of_tiles_peers_are_searched_nearby() -> None:
    box = (5, 3, 6, 4)
    peers = textures(2)
    near, far = shown_in(peers[1], box, 0, 2), shown_in(peers[1], box, 0, 9)
    boxes, one = np.array([box]), np.array([0])
    for image, tile, wanted in ((near, (4, 6), 2), (far, None, 9)):
        match = match_among_peers(bags_of(image, tile=tile), peers, np.array([-1]))
        assert match(one, boxes, None).tolist() == [[1, 0, wanted]]
    match = match_among_peers(bags_of(far, tile=(4, 6)), peers, np.array([-1]))
    assert match(one, boxes, None)[0, 2] != 9


def test_a_sampled_bank_still_tells_the_place() -> None:
    normals, box = textures(6), (4, 5, 6, 8)
    known = Bags(normals.astype(np.float16), GRID)
    half = known.patches.nbytes * 3 // 4
    reference = NormalReference.from_bags(known, bank_bytes=half)
    assert len(reference.bank) < known.patches.shape[0] * known.n_patches
    bags = bags_of(shown_in(normals[4], box, 1, -2))
    found = reference.compare(bags).match(np.array([0]), np.array([box]), None)
    assert found.tolist() == [[4, 1, -2]]


def test_one_patch_alone_is_no_match() -> None:
    """Of a place in a sampled bank some patches are unknown; of a match most must be known."""
    normals, box = textures(2), (4, 5, 6, 8)
    image = shown_in(normals[1], box, 0, 0)
    image = image + 0.1 * np.random.default_rng(0).standard_normal(image.shape)
    image = (image / np.linalg.norm(image, axis=-1, keepdims=True)).astype(np.float32)
    at = recognised_by(np.array(box), GRID)
    lone = int(at[0, 0] * GRID[1] + at[0, 1])
    n_patches = GRID[0] * GRID[1]
    rows = np.array([lone, *range(n_patches, 2 * n_patches)])
    bank = np.concatenate([image[lone : lone + 1], normals[1]])
    reference = NormalReference(bank, exact=True, rows=rows)
    found = reference.compare(bags_of(image)).match(np.array([0]), np.array([box]), None)
    assert found.tolist() == [[1, 0, 0]]


@pytest.mark.parametrize("exact", [True, False])
def test_a_stored_reference_finds_the_same(exact: bool) -> None:
    normals, box = textures(5), (4, 5, 6, 8)
    known = Bags(normals.astype(np.float16), GRID)
    reference = NormalReference.from_bags(known, exact=exact)
    bags = bags_of(shown_in(normals[3], box, 2, -1))
    again = restore_reference(reference.stored(), nearest_share=1.0)
    for one in (reference, again):
        found = one.compare(bags).match(np.array([0]), np.array([box]), None)
        assert found.tolist() == [[3, 2, -1]]


def test_a_bank_of_unknown_images_matches_nothing() -> None:
    reference = NormalReference(textures(2).reshape(-1, DIM), exact=True)
    comparison = reference.compare(bags_of(textures(1)[0]))
    assert comparison.match(np.array([0, 0]), np.zeros((2, 4), int), None).tolist() == [
        [-1, 0, 0],
        [-1, 0, 0],
    ]
    assert reference.stored().rows is None


def test_padding_recognises_nothing() -> None:
    box, normals = (4, 8, 6, 10), textures(4)
    image = shown_in(normals[2], box, 0, 0).reshape(*GRID, DIM)
    valid = np.ones((1, *GRID), bool)
    valid[:, :, :10] = False
    image[:, :10] = normals[0].reshape(*GRID, DIM)[:, :10]  # what is there is another image
    assert in_normals(bags_of(image.reshape(-1, DIM)), normals, [box]).tolist() == [[0, 0, 0]]
    bags = bags_of(image.reshape(-1, DIM), valid=valid.reshape(1, -1))
    assert in_normals(bags, normals, [box]).tolist() == [[2, 0, 0]]


def test_where_patches_of_a_bank_come_from() -> None:
    rows = np.array([7, 3, 11, 0])
    at, known = BankPlaces(rows, 4).find(np.array([[3, 4], [11, 12]]))
    assert known.tolist() == [[True, False], [True, False]]
    assert at[known].tolist() == [1, 2]


def test_the_patches_of_some_images_of_a_bank() -> None:
    # Images 0, 2, 5 and 9, of which 2 lacks its first and 9 all but its last patch.
    rows = np.array([39, 0, 1, 2, 3, 9, 10, 11, 20, 21, 22, 23])
    places = BankPlaces(rows, 4)
    assert places.of_images(9).tolist() == [
        [1, 2, 3, 4],
        [5, 5, 6, 7],
        [8, 9, 10, 11],
        [0, 0, 0, 0],
    ]
    assert places.of_images(2).tolist() == [[1, 2, 3, 4], [0, 0, 0, 0]]
    assert places.of_images(1).tolist() == [[1, 2, 3, 4]]


@pytest.mark.parametrize("box", [*BOXES, (0, 0, *GRID)])
def test_a_place_is_recognised_by_a_few_patches_around_it(box: tuple[int, int, int, int]) -> None:
    at = recognised_by(np.array(box), GRID)
    assert 0 < len(at) <= SPREAD**2
    assert (at >= 0).all()
    assert (at < GRID).all()
    assert len(np.unique(at, axis=0)) == len(at)
    top, left, bottom, right = box
    inside = (at[:, 0] >= top) & (at[:, 0] < bottom) & (at[:, 1] >= left) & (at[:, 1] < right)
    assert inside.all() if box == (0, 0, *GRID) else not inside.any()


def test_no_places_at_all() -> None:
    found = in_normals(bags_of(textures(1)[0]), textures(2), [])
    assert found.shape == (0, 3)


def test_match_in_bank_follows_the_nearest_patches() -> None:
    """A proposal comes from a patch of the surroundings, so a bank that does not know any of them
    proposes the same place of the images that it knows."""
    normals = textures(2)
    index = np.zeros((1, GRID[0] * GRID[1]), int)  # every patch is nearest to the first one
    bags = bags_of(textures(1, seed=7)[0])
    known = BankPlaces(np.arange(2 * GRID[0] * GRID[1]), GRID[0] * GRID[1])
    match = match_in_bank(bags, index, normals.reshape(-1, DIM), known)
    assert match(np.array([0]), np.array([(4, 5, 6, 8)]), None)[0, 0] == 0
