"""Whatever a user passes as images, and copies told from distinct content."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flawsort.core.errors import InputError
from flawsort.core.records import Bags, ImageSet, SetAside
from flawsort.images.find import array_images, find_images
from flawsort.images.inputs import (
    checked,
    content_rows,
    distinct_rows,
    gather,
    given_places,
    image_set_of,
    used_images,
    with_window,
)
from flawsort.images.view import View, decode
from helpers.bags import Array, unit_vectors


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five files that hold their own name: nothing here decodes them."""
    for name in ("a.png", "b.png", "c.png", "sub/a.png", "sub/d.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    return tmp_path


def image_set(digests: str, **others: Any) -> ImageSet:
    names = tuple(f"{row}.png" for row in range(len(digests)))
    return ImageSet(names, tuple(Path(name) for name in names), tuple(digests), **others)


def made_bags(n_images: int = 4, *, valid: Array | None = None, seed: int = 0) -> Bags:
    return Bags(unit_vectors(n_images, 6, 5, seed=seed, dtype=np.float16), (2, 3), valid)


# ---- gathering ----


def test_places_of_files_that_were_passed_one_by_one(folder: Path) -> None:
    (folder / "empty.png").touch()
    given = [folder / "c.png", folder / "empty.png", str(folder / "a.png"), folder / "c.png"]
    images = gather(given)
    assert isinstance(images, ImageSet)
    assert images.names == ("c.png", "a.png")
    assert given_places(given, images) == ([0, 2], 4)


def test_places_of_other_images(folder: Path) -> None:
    for given in (folder, str(folder), [folder], [folder, folder / "a.png"]):
        images = gather(given)
        assert isinstance(images, ImageSet)
        assert given_places(given, images) == ([0, 1, 2, 3, 4], 5)
    arrays = [np.zeros((2, 2), np.uint8)] * 3
    assert given_places(arrays, array_images(arrays)) == ([0, 1, 2], 3)
    assert given_places(image_set("ab"), image_set("ab")) == ([0, 1], 2)


def test_what_is_ready_is_passed_on() -> None:
    for ready in (image_set("ab"), made_bags()):
        assert gather(ready) is ready


def test_one_source_is_sorted_by_name(folder: Path) -> None:
    names = ("a.png", "b.png", "c.png", "sub/a.png", "sub/d.png")
    assert gather(folder).names == gather(str(folder)).names == names  # type: ignore[union-attr]


@pytest.mark.parametrize("form", [str, Path])
@pytest.mark.parametrize("order", [["c", "a", "b"], ["b", "c", "a"], ["a", "b", "c"], ["b"]])
def test_listed_files_keep_their_order(folder: Path, order: list[str], form: type) -> None:
    images = gather([form(folder / f"{name}.png") for name in order])
    assert isinstance(images, ImageSet)
    assert images.names == tuple(f"{name}.png" for name in order)
    assert images.sources == tuple(folder / f"{name}.png" for name in order)
    by_name = find_images(folder)
    known = dict(zip(by_name.names, by_name.digests, strict=True))
    assert images.digests == tuple(known[name] for name in images.names)


def test_listed_files_of_several_folders_keep_their_order(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    images = gather(
        ("sub/d.png", "./c.png", Path("sub/a.png"), str(folder / "a.png"), "sub/../b.png")
    )
    assert isinstance(images, ImageSet)
    read = [Path(source).read_text() for source in images.sources]  # type: ignore[arg-type]
    assert read == ["sub/d.png", "c.png", "sub/a.png", "a.png", "b.png"]
    assert len(set(images.names)) == 5


def test_a_file_that_is_listed_twice_is_there_once_where_it_came_first(folder: Path) -> None:
    images = gather([folder / f"{name}.png" for name in "cacb"])
    assert isinstance(images, ImageSet)
    assert images.names == ("c.png", "a.png", "b.png")


def test_listed_files_that_cannot_be_used_leave_the_order_as_it_is(folder: Path) -> None:
    (folder / "b.png").write_bytes(b"")
    images = gather([folder / f"{name}.png" for name in "cba"])
    assert isinstance(images, ImageSet)
    assert images.names == ("c.png", "a.png")
    assert images.set_aside == (SetAside("b.png", "is empty (0 bytes)"),)


@pytest.mark.parametrize("other", ["sub", "sub/*.png", "list.txt"])
def test_a_list_with_more_than_files_is_sorted_by_name(folder: Path, other: str) -> None:
    (folder / "list.txt").write_text("sub/d.png\nsub/a.png\n")
    images = gather([folder / "c.png", folder / other, folder / "b.png"])
    assert isinstance(images, ImageSet)
    assert images.names == tuple(sorted(images.names))
    assert len(images) == 4


def test_arrays_keep_their_order() -> None:
    arrays = [np.full((2, 2), value, np.uint8) for value in (9, 1, 5)]
    for given in (arrays, tuple(arrays), np.stack(arrays)):
        images = gather(given)
        assert isinstance(images, ImageSet)
        assert images.digests == array_images(arrays).digests


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 1), (5, 7, 3), (5, 7, 4)])
def test_an_array_of_one_image_is_one_image(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    for given in (array, [array], array[np.newaxis]):
        images = gather(given)
        assert isinstance(images, ImageSet)
        assert images.digests == array_images([array]).digests


def test_a_stack_of_grey_images_is_as_many() -> None:
    assert len(gather(np.zeros((6, 5, 7), np.uint8))) == 6
    assert len(gather(np.zeros((6, 5, 7, 3), np.uint8))) == 6
    with pytest.raises(InputError, match=r"Got \(2, 6, 5, 7, 3\)"):
        gather(np.zeros((2, 6, 5, 7, 3), np.uint8))


def test_what_is_no_image_is_refused() -> None:
    for given in (7, None):
        with pytest.raises(InputError, match=rf"Bags\. Got {type(given).__name__}\."):
            gather(given)  # type: ignore[arg-type]


# ---- PIL images ----


def test_pil_images_alone_and_in_lists(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    picture = Image.fromarray(values)
    alone, listed = gather(picture), gather([picture, values, picture.convert("L")])
    assert isinstance(alone, ImageSet)
    assert isinstance(listed, ImageSet)
    assert alone.digests == listed.digests[:1] == listed.digests[1:2]
    assert len(set(listed.digests)) == 2
    with pytest.raises(InputError, match=r"Image 1 must be an array .*To use files, pass their"):
        gather([picture, tmp_path / "a.png"])  # type: ignore[list-item]


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "I;16", "F"])
def test_a_pil_image_is_seen_as_its_file_is(tmp_path: Path, mode: str) -> None:
    rng = np.random.default_rng(1)
    if mode == "I;16":
        picture = Image.fromarray(rng.integers(0, 2**16, (6, 9), np.uint16))
    elif mode == "F":
        picture = Image.fromarray(rng.random((6, 9), np.float32))
    else:
        picture = Image.fromarray(rng.integers(0, 256, (6, 9, 4), np.uint8)).convert(mode)
    path = tmp_path / f"a.{'png' if mode not in ('CMYK', 'F') else 'tif'}"
    picture.save(path)
    view = View(window=(0.0, 1.0 if mode == "F" else 65535.0))
    images = gather(Image.open(path))
    assert isinstance(images, ImageSet)
    seen = decode(images.sources[0], view, (6, 9)).frames
    np.testing.assert_allclose(seen, decode(path, view, (6, 9)).frames, atol=1e-6)


def test_a_pil_image_is_turned_upright() -> None:
    values = np.arange(12, dtype=np.uint8).reshape(3, 4)
    content = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(values).save(content, "PNG", exif=exif)
    images = gather(Image.open(content))
    assert isinstance(images, ImageSet)
    np.testing.assert_array_equal(images.sources[0], np.rot90(values, -1))


def test_a_damaged_pil_image_is_told_by_its_number() -> None:
    content = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(content, "PNG")
    half = Image.open(io.BytesIO(content.getvalue()[:3000]))
    with pytest.raises(InputError, match=r"^Image 1 cannot be read: "):
        gather([noise, half])


# ---- bags ----


def test_bags_are_named_by_number_and_known_by_content() -> None:
    bags = made_bags(3).take([0, 1, 0, 2])
    images = image_set_of(bags)
    assert images.names == ("bag-00000", "bag-00001", "bag-00002", "bag-00003")
    assert images.duplicates() == (("bag-00000", "bag-00002"),)
    valid = np.ones((4, 6), bool)
    valid[2, 5] = False  # what counts is content too
    assert image_set_of(Bags(bags.patches, bags.grid, valid)).duplicates() == ()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_bags_of_unit_length_pass(dtype: type) -> None:
    patches = unit_vectors(4, 6, 5, dtype=dtype)
    for valid in (None, np.ones((4, 6), bool)):
        bags = Bags(patches, (2, 3), valid)
        assert checked(bags) is bags


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("value", [0, 0.5, 1.05, 1e4, np.nan, np.inf, -np.inf])
def test_other_lengths_are_refused(value: float) -> None:
    bags = made_bags()
    bags.patches[2, 3] *= np.float16(value)
    with pytest.raises(InputError, match=r"patches must be finite and of unit length\. Got len"):
        checked(bags)


def test_a_single_value_that_is_not_finite_is_refused() -> None:
    bags = made_bags()
    bags.patches[0, 0, 0] = np.nan
    with pytest.raises(InputError, match=r"Got lengths from nan to nan"):
        checked(bags)


def test_an_image_without_a_valid_patch_is_refused() -> None:
    valid = np.ones((4, 6), bool)
    valid[3] = False
    with pytest.raises(InputError, match="Every image needs a valid patch"):
        checked(made_bags(valid=valid))


def test_patches_that_do_not_count_become_copies_of_one_that_does() -> None:
    valid = np.random.default_rng(1).random((4, 6)) > 0.5
    valid[:, 4] = True
    given = made_bags(valid=valid)
    before = given.patches.copy()
    bags = checked(given)
    np.testing.assert_array_equal(given.patches, before)
    assert bags.valid is valid
    np.testing.assert_array_equal(bags.patches[valid], before[valid])
    for bag, inside in zip(bags.patches, valid, strict=True):
        first = bag[inside][0]
        np.testing.assert_array_equal(bag[~inside], np.tile(first, ((~inside).sum(), 1)))


# ---- copies ----


def test_distinct_rows_are_in_the_order_of_content() -> None:
    images = image_set("cabcaab")
    distinct = distinct_rows(images)
    np.testing.assert_array_equal(distinct, [1, 2, 0])
    np.testing.assert_array_equal(
        content_rows(images, images.take(distinct)), [2, 0, 1, 2, 0, 0, 1]
    )


@pytest.mark.parametrize("digests", ["a", "aaaa", "dcba"])
def test_rows_lead_back_to_the_content(digests: str) -> None:
    images = image_set(digests)
    distinct = images.take(distinct_rows(images))
    assert list(distinct.digests) == sorted(set(digests))
    rows = content_rows(images, distinct)
    assert "".join(distinct.digests[row] for row in rows) == digests


def test_copies_of_what_cannot_be_used_are_set_aside_too() -> None:
    images = image_set("cabca", set_aside=(SetAside("early.png", "is empty (0 bytes)"),))
    distinct = images.take(distinct_rows(images))
    embedded = distinct.without([SetAside("0.png", "torn")])  # the content "c"
    used = used_images(images, embedded)
    assert used.names == ("1.png", "2.png", "4.png")
    assert used.digests == ("a", "b", "a")
    assert used.set_aside == (
        SetAside("early.png", "is empty (0 bytes)"),
        SetAside("0.png", "torn"),
        SetAside("3.png", "torn"),
    )


def test_where_all_can_be_used_nothing_changes() -> None:
    images = image_set("bab")
    assert used_images(images, images.take(distinct_rows(images))) == images


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="the system has no links")
def test_a_link_to_a_listed_file_is_that_file(folder: Path) -> None:
    (folder / "link.png").symlink_to(folder / "a.png")
    images = gather([folder / "link.png", folder / "b.png", folder / "a.png"])
    assert isinstance(images, ImageSet)
    assert images.names == ("link.png", "b.png")


def test_a_window_is_measured_on_images_and_normals() -> None:
    dark, bright = (np.full((4, 4), value, np.uint16) for value in (100, 900))
    images, normals = array_images([dark]), array_images([bright])
    assert with_window(View(), images).window == (100, 101)
    low, high = with_window(View(), images, normals).window or (0, 0)
    assert (round(low), round(high)) == (100, 900)
    given = View(window=(1, 2))
    assert with_window(given, images) is given
    assert with_window(View(), array_images([dark.astype(np.uint8)])).window is None


# ---- bags of several views ----


def two_views() -> Bags:
    """Four images; the first view of the last two is the same."""
    first = unit_vectors(4, 4, 3)
    first[3] = first[2]
    return Bags(first, (2, 2), beside=(Bags(unit_vectors(4, 9, 5, seed=1), (3, 3)),))


def test_copies_are_equal_in_every_view() -> None:
    bags = two_views()
    assert image_set_of(bags.views[0]).duplicates() == (("bag-00002", "bag-00003"),)
    assert image_set_of(bags).duplicates() == ()
    copies = image_set_of(bags.take([0, 1, 0]))
    assert copies.duplicates() == (("bag-00000", "bag-00002"),)
    assert copies.digests == image_set_of(bags).take([0, 1, 0]).digests


def test_every_view_is_checked() -> None:
    bags = two_views()
    assert checked(bags).shapes == bags.shapes
    other = bags.beside[0]
    long = replace(other, patches=2 * other.patches)
    with pytest.raises(InputError, match=r"of unit length\. Got lengths from 2 to 2"):
        checked(replace(bags, beside=(long,)))
    valid = np.ones((4, 9), bool)
    valid[1] = False
    with pytest.raises(InputError, match="Every image needs a valid patch"):
        checked(replace(bags, beside=(replace(other, valid=valid),)))


def test_padding_of_every_view_is_replaced() -> None:
    bags = two_views()
    valid = np.ones((4, 9), bool)
    valid[:, 4:] = False
    patches = bags.beside[0].patches.copy()
    patches[:, 4:] = np.nan
    found = checked(replace(bags, beside=(Bags(patches, (3, 3), valid),))).beside[0]
    np.testing.assert_array_equal(found.patches[:, 4:], patches[:, :1].repeat(5, axis=1))
    assert np.isnan(patches[:, 4:]).all()
