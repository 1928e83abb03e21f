"""The records that travel between stages, and the threads that work on them."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np
import pytest

from flawsort.core.errors import InputError
from flawsort.core.records import Bags, ImageSet, SetAside
from flawsort.core.threads import (
    blocks,
    in_blocks,
    in_threads,
    limit,
    n_threads,
    single_threaded_blas,
)
from helpers.bags import unit_vectors


def image_set() -> ImageSet:
    names = ("a", "b", "c", "d")
    return ImageSet(
        names, tuple(Path(name) for name in names), ("1", "2", "1", "3"), (SetAside("x", "torn"),)
    )


def test_images_taken_keep_their_order_and_what_was_set_aside() -> None:
    taken = image_set().take([2, 0])
    assert taken.names == ("c", "a")
    assert taken.sources == (Path("c"), Path("a"))
    assert taken.digests == ("1", "1")
    assert taken.set_aside == (SetAside("x", "torn"),)
    assert len(taken) == 2


def test_images_without_the_bad_ones_list_them() -> None:
    left = image_set().without([SetAside("b", "empty")])
    assert left.names == ("a", "c", "d")
    assert left.digests == ("1", "1", "3")
    assert left.set_aside == (SetAside("x", "torn"), SetAside("b", "empty"))


def test_duplicates_are_groups_of_equal_content() -> None:
    assert image_set().duplicates() == (("a", "c"),)
    assert image_set().take([0, 1]).duplicates() == ()


def test_image_set_of_unequal_lengths_is_refused() -> None:
    with pytest.raises(InputError, match=r"same length\. Got 1, 0 and 1\."):
        ImageSet(("a",), (), ("1",))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_valid_patches_of_an_image(dtype: type) -> None:
    patches = unit_vectors(2, 6, 3, dtype=dtype)
    valid = np.array([[True] * 6, [True, False, False, True, False, True]])
    for bags, rows in (
        (Bags(patches, (2, 3), valid), [0, 3, 5]),
        (Bags(patches, (2, 3)), [*range(6)]),
    ):
        found = bags.valid_patches(1)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, patches[1, rows])
        found[:] = 0
    assert patches.any(axis=2).all()  # a copy


def test_bags_say_their_sizes_and_can_be_taken() -> None:
    patches = unit_vectors(4, 6, 3)
    valid = np.ones((4, 6), bool)
    valid[3, 0] = False
    bags = Bags(patches, (2, 3), valid)
    assert (len(bags), bags.n_patches, bags.dim) == (4, 6, 3)
    taken = bags.take([3, 1])
    np.testing.assert_array_equal(taken.patches, patches[[3, 1]])
    assert taken.grid == (2, 3)
    assert taken.valid is not None
    assert not taken.valid[0, 0]
    assert Bags(patches, (2, 3)).take(np.array([0])).valid is None


def test_a_set_is_shown_in_one_short_line() -> None:
    names = tuple(f"{number}.png" for number in range(5000))
    images = ImageSet(names, tuple(map(Path, names)), names, (SetAside("x", "is empty"),))
    assert repr(images) == "<ImageSet of 5,000: '0.png', '1.png', '2.png', ...; 1 set aside>"
    assert repr(images.take([7])) == "<ImageSet of 1: '7.png'; 1 set aside>"


def test_records_are_frozen() -> None:
    bags = Bags(unit_vectors(1, 1, 2), (1, 1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        bags.grid = (2, 2)  # type: ignore[misc]


@pytest.mark.parametrize("shape", [(4, 3), (0, 4, 3), (2, 0, 3), (2, 4, 0), (1, 2, 4, 3)])
def test_bags_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"patches must have the shape .* Got \("):
        Bags(np.zeros(shape, np.float32), (2, 2))


def test_bags_on_another_grid_are_refused() -> None:
    with pytest.raises(InputError, match=r"number of patches, 6\. Got 2 x 2\."):
        Bags(unit_vectors(1, 6, 2), (2, 2))


def test_valid_of_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match=r"valid must have the shape \(2, 6\)\. Got \(2, 5\)\."):
        Bags(unit_vectors(2, 6, 2), (2, 3), np.ones((2, 5), bool))


# ---- threads ----


@pytest.mark.parametrize("at_once", [1, 3, 7, 100])
def test_blocks(at_once: int) -> None:
    rows = np.arange(7)
    pieces = [rows[some] for some in blocks(7, at_once)]
    assert [len(piece) for piece in pieces[:-1]] == [at_once] * (len(pieces) - 1)
    np.testing.assert_array_equal(np.concatenate(pieces), rows)
    assert all(0 <= some.start < some.stop <= 7 for some in blocks(7, at_once))
    assert list(blocks(0, at_once)) == []
    done = in_blocks(lambda some: np.stack([rows[some], rows[some] ** 2], axis=1), 7, at_once)
    np.testing.assert_array_equal(done, np.stack([rows, rows**2], axis=1))


def test_results_come_in_the_order_of_the_items() -> None:
    release = threading.Event()

    def work(item: int) -> int:
        if item == 0:
            release.wait(5)  # the first to start is the last to end
        else:
            release.set()
        return item * item

    if n_threads() == 1:
        release.set()
    assert list(in_threads(work, range(20))) == [item * item for item in range(20)]
    assert list(in_threads(work, [])) == []


def test_items_are_taken_only_a_little_ahead_of_the_consumer() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(1000):
            taken.append(item)
            yield item

    results = in_threads(lambda item: item, items(), ahead=3)
    assert isinstance(results, Generator)
    assert next(results) == 0
    assert len(taken) <= 3 * n_threads() + 1
    results.close()
    assert len(taken) <= 3 * n_threads() + 1


def test_an_error_in_a_thread_arrives_and_ends_the_work() -> None:
    def work(item: int) -> int:
        if item == 3:
            raise RuntimeError("three")
        return item

    seen: list[int] = []
    with pytest.raises(RuntimeError, match="three"):
        seen.extend(in_threads(work, range(100)))
    assert seen == [0, 1, 2]


def test_blas_runs_on_one_thread_inside_and_as_before_after() -> None:
    from threadpoolctl import threadpool_info

    def blas_threads() -> list[int]:
        return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]

    before = blas_threads()
    with single_threaded_blas():
        assert set(blas_threads()) <= {1}
    assert blas_threads() == before


def test_a_limit_holds_for_all_threads_and_ends() -> None:
    from threadpoolctl import threadpool_info

    def threads() -> tuple[int, set[int]]:
        return n_threads(), {lib["num_threads"] for lib in threadpool_info()}

    before = threads()
    with limit(1):
        assert threads() == (1, {1})
        with limit(3):
            assert n_threads() == 3
        with pytest.raises(ZeroDivisionError), limit(3):
            raise ZeroDivisionError
        assert list(in_threads(lambda item: n_threads(), range(3))) == [1, 1, 1]
        assert threads() == (1, {1})
    assert threads() == before


# ---- several views ----


def two_views(n: int = 4) -> Bags:
    """A masked view of 2 x 3 patches, and beside it one of 2 x 2 in half precision."""
    valid = np.ones((n, 6), bool)
    valid[1, 4:] = False
    other = Bags(unit_vectors(n, 4, 5, seed=1, dtype=np.float16), (2, 2))
    return Bags(unit_vectors(n, 6, 3), (2, 3), valid, (other,))


def test_views_are_the_bags_of_each_view_alone() -> None:
    bags = two_views()
    first, second = bags.views
    assert (first.beside, second.beside) == ((), ())
    assert first.patches is bags.patches
    assert first.valid is bags.valid
    assert second is bags.beside[0]
    assert first.views == (first,)
    assert bags.shapes == ((6, 3), (4, 5))
    assert first.shapes == ((6, 3),)
    assert (len(bags), bags.grid, bags.n_patches, bags.dim) == (4, (2, 3), 6, 3)


def test_the_memory_of_all_views() -> None:
    bags = two_views()
    assert bags.nbytes == 4 * 6 * 3 * 4 + 4 * 4 * 5 * 2
    assert bags.views[0].nbytes == 4 * 6 * 3 * 4


def test_taken_rows_are_those_of_every_view() -> None:
    bags = two_views()
    taken = bags.take([3, 1, 1])
    assert taken.valid is not None
    assert bags.valid is not None
    for one, before in zip(taken.views, bags.views, strict=True):
        np.testing.assert_array_equal(one.patches, before.patches[[3, 1, 1]])
        assert one.patches.dtype == before.patches.dtype
        assert one.grid == before.grid
    np.testing.assert_array_equal(taken.valid, bags.valid[[3, 1, 1]])
    assert taken.beside[0].valid is None


def test_several_views_are_shown() -> None:
    assert repr(two_views()) == (
        "Bags(4 images, 2 x 3 patches of 3 dimensions, float32, and 1 more view)"
    )


def test_views_of_other_images_are_refused() -> None:
    one = Bags(unit_vectors(4, 6, 3), (2, 3))
    with pytest.raises(InputError, match=r"same 4 images.* Got 3 images and 0 views\."):
        dataclasses.replace(one, beside=(one.take([0, 1, 2]),))
    with pytest.raises(InputError, match=r"no views of its own\. Got 4 images and 1 views\."):
        dataclasses.replace(one, beside=(two_views(),))
