"""Images through a backbone to bags: cached, resumable, tiled, masked."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from flawsort.backbones import BackboneInfo
from flawsort.backbones import embed as embed_module
from flawsort.backbones.cache import BagCache
from flawsort.backbones.embed import Embedded, _joined, cache_setting, embed, embed_batch
from flawsort.backbones.patches import patch_embeddings
from flawsort.core.errors import BackboneError, InputError
from flawsort.core.records import ImageSet, SetAside
from flawsort.images.budget import BUDGET
from flawsort.images.find import array_images, find_images
from flawsort.images.view import View, decode
from helpers.bags import Array


class MeanColours:
    """A backbone for images of 8 x 8: the mean colour of each square of 2 x 2.

    fails_after: so many batches are computed, then the power goes. Batches run in threads, and
    those are counted that have begun.
    """

    def __init__(self, *, sha256: str = "colours", fails_after: int | None = None) -> None:
        self.info = BackboneInfo("colours", sha256, "none", "a test", (8, 8))
        self.batches: list[int] = []
        self._left = fails_after
        self._lock = threading.Lock()

    def feature_maps(self, pixels: Array) -> list[Array]:
        assert pixels.shape[1:] == (3, 8, 8)
        with self._lock:
            if self._left is not None:
                if self._left == 0:
                    raise KeyboardInterrupt
                self._left -= 1
            self.batches.append(len(pixels))
        return [pixels.reshape(len(pixels), 3, 4, 2, 4, 2).mean(axis=(3, 5))]


class WideColours:
    """A backbone for images of 16 x 16: the mean colour of each square of 2 x 2, without those
    around it."""

    def __init__(self) -> None:
        self.info = BackboneInfo("wide", "wide", "none", "a test", (16, 16), pooling_kernel=1)

    def feature_maps(self, pixels: Array) -> list[Array]:
        return [pixels.reshape(len(pixels), 3, 8, 2, 8, 2).mean(axis=(3, 5))]


COLOURS = [(250, 10, 10), (10, 250, 10), (10, 10, 250), (240, 240, 10), (10, 240, 240), (9, 9, 9)]


def direction(colour: tuple[int, int, int]) -> Array:
    return np.array(colour) / np.linalg.norm(colour)


def paint(folder: Path, n: int = len(COLOURS), size: tuple[int, int] = (8, 8)) -> ImageSet:
    """Files 0.png, 1.png, ... of one colour each. size: width, height."""
    folder.mkdir(exist_ok=True)
    for number, colour in enumerate(COLOURS[:n]):
        Image.new("RGB", size, colour).save(folder / f"{number}.png")
    return find_images(folder)


def cache_in(folder: Path, backbone: MeanColours, view: View | None = None) -> BagCache:
    view = view or View()
    return BagCache(folder, cache_setting(backbone, view), max_pixels=view.max_pixels)


def bag_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.bag"))


def check_colours(embedded: Embedded, colours: list[tuple[int, int, int]]) -> None:
    assert embedded.bags.patches.dtype == np.float16
    assert len(embedded.bags) == len(embedded.images) == len(colours)
    for bag, colour in zip(embedded.bags.patches, colours, strict=True):
        np.testing.assert_allclose(bag, np.tile(direction(colour), (len(bag), 1)), atol=1e-3)


# ---- rows ----


@pytest.mark.parametrize(
    ("kind", "stage"), [("image", "embedding"), ("normal", "embedding normals")]
)
def test_rows_are_in_the_order_of_the_images(tmp_path: Path, kind: str, stage: str) -> None:
    images, backbone = paint(tmp_path), MeanColours()
    calls: list[tuple[str, int, int]] = []
    embedded = embed(
        images,
        backbone,
        View(),
        kind=kind,
        batch_frames=4,
        progress=lambda *call: calls.append(call),
    )
    check_colours(embedded, COLOURS)
    assert embedded.bags.grid == (4, 4)
    assert embedded.bags.valid is None
    assert embedded.images == images
    assert sorted(backbone.batches) == [2, 4]
    assert calls == [(stage, done, 6) for done in (0, 4, 6)]


def test_content_that_occurs_twice_is_embedded_once(tmp_path: Path) -> None:
    paint(tmp_path, 3)
    (tmp_path / "copy of 1.png").write_bytes((tmp_path / "1.png").read_bytes())
    images, backbone = find_images(tmp_path), MeanColours()
    embedded = embed(images, backbone, View())
    assert images.names == ("0.png", "1.png", "2.png", "copy of 1.png")
    check_colours(embedded, [*COLOURS[:3], COLOURS[1]])
    assert sum(backbone.batches) == 3


def test_arrays_are_embedded_as_files_are(tmp_path: Path) -> None:
    arrays = [np.full((8, 8, 3), colour, np.uint8) for colour in COLOURS]
    check_colours(embed(array_images(arrays), MeanColours(), View()), COLOURS)


def test_bad_files_are_set_aside_and_the_gaps_closed(tmp_path: Path) -> None:
    paint(tmp_path)
    for bad in (0, 3):
        (tmp_path / f"{bad}.png").write_bytes(b"\x89PNG\r\n\x1a\n torn off" + bytes([bad]))
    images = find_images(tmp_path)
    cache = cache_in(tmp_path / "cache", MeanColours())
    for computed in (4, 0):
        backbone = MeanColours()
        embedded = embed(images, backbone, View(), cache=cache, batch_frames=2)
        check_colours(embedded, [COLOURS[i] for i in (1, 2, 4, 5)])
        assert embedded.images.names == ("1.png", "2.png", "4.png", "5.png")
        assert [entry.name for entry in embedded.images.set_aside] == ["0.png", "3.png"]
        assert all(entry.reason for entry in embedded.images.set_aside)
        assert sum(backbone.batches) == computed


def test_copies_of_a_bad_file_are_all_set_aside(tmp_path: Path) -> None:
    paint(tmp_path, 2)
    for name in ("x.png", "y.png"):
        (tmp_path / name).write_bytes(b"torn")
    embedded = embed(find_images(tmp_path), MeanColours(), View())
    check_colours(embedded, COLOURS[:2])
    assert [entry.name for entry in embedded.images.set_aside] == ["x.png", "y.png"]


def test_nothing_usable_is_an_error_that_names_a_reason(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(f"torn {name}".encode())
    images = find_images(tmp_path)
    with pytest.raises(
        InputError, match=r"No usable image: all 2 were set aside\. The first, 'a\.png': \S"
    ):
        embed(images, MeanColours(), View())
    with pytest.raises(InputError, match=r"No usable normal: all 2 were set aside"):
        embed(images, MeanColours(), View(), kind="normal")
    with pytest.raises(InputError, match=r"No usable image: 'x' was set aside: empty\."):
        embed(ImageSet((), (), (), (SetAside("x", "empty"),)), MeanColours(), View())


def test_what_a_backbone_cannot_do_is_its_error(tmp_path: Path) -> None:
    class Broken(MeanColours):
        def feature_maps(self, pixels: Array) -> list[Array]:
            return [super().feature_maps(pixels)[0] * np.float32(np.nan)]

    with pytest.raises(BackboneError, match="not finite"):
        embed(paint(tmp_path), Broken(), View())


def test_batches_are_as_large_as_suits_the_backbone(tmp_path: Path) -> None:
    images = paint(tmp_path)
    usual, large = MeanColours(), MeanColours()
    large.batch_frames = 4
    embed(images, usual, View())
    embed(images, large, View())
    assert sorted(usual.batches) == [2, 2, 2]
    assert sorted(large.batches) == [2, 4]
    large.batches.clear()
    embed(images, large, View(), batch_frames=3)
    assert large.batches == [3, 3]


# ---- the cache ----


def test_a_second_run_computes_nothing(tmp_path: Path) -> None:
    images, cache = paint(tmp_path / "images"), tmp_path / "cache"
    first = embed(images, MeanColours(), View(), cache=cache_in(cache, MeanColours()))
    assert len(bag_files(cache)) == 6
    idle = MeanColours(fails_after=0)
    calls: list[tuple[str, int, int]] = []
    second = embed(
        images,
        idle,
        View(),
        cache=cache_in(cache, idle),
        progress=lambda *call: calls.append(call),
    )
    np.testing.assert_array_equal(second.bags.patches, first.bags.patches)
    assert second.bags.grid == first.bags.grid
    assert idle.batches == []
    assert calls == [("embedding", 6, 6)]


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty"])
def test_a_damaged_entry_is_computed_again(tmp_path: Path, damage: str) -> None:
    images, folder = paint(tmp_path / "images"), tmp_path / "cache"
    embed(images, MeanColours(), View(), cache=cache_in(folder, MeanColours()))
    path = bag_files(folder)[2]
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 1
    else:
        content = content[: len(content) // 2 if damage == "truncate" else 0]
    path.write_bytes(content)
    backbone = MeanColours()
    embedded = embed(images, backbone, View(), cache=cache_in(folder, backbone))
    check_colours(embedded, COLOURS)
    assert backbone.batches == [1]


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    images, folder = paint(tmp_path / "images"), tmp_path / "cache"
    cut_off = MeanColours(fails_after=2)
    with pytest.raises(KeyboardInterrupt):
        embed(images, cut_off, View(), cache=cache_in(folder, cut_off), batch_frames=2)
    assert len(bag_files(folder)) == 4
    backbone = MeanColours()
    cache = cache_in(folder, backbone)
    embedded = embed(images, backbone, View(), cache=cache, batch_frames=2)
    check_colours(embedded, COLOURS)
    assert backbone.batches == [2]


CHANGED = "it changed while it was being read"


def test_a_file_that_changed_since_it_was_hashed_is_set_aside(tmp_path: Path) -> None:
    images, folder = paint(tmp_path / "images"), tmp_path / "cache"
    path = tmp_path / "images" / "1.png"
    before = path.read_bytes()
    Image.new("RGB", (8, 8), (1, 2, 3)).save(path)
    backbone = MeanColours()
    embedded = embed(images, backbone, View(), cache=cache_in(folder, backbone))
    check_colours(embedded, [COLOURS[0], *COLOURS[2:]])
    assert embedded.images.set_aside == (SetAside("1.png", CHANGED),)
    assert len(bag_files(folder)) == sum(backbone.batches) == 5
    path.write_bytes(before)  # nothing wrong was kept under its content
    again = MeanColours()
    check_colours(embed(images, again, View(), cache=cache_in(folder, again)), COLOURS)
    assert again.batches == [1]


def test_what_happens_to_a_file_after_it_was_read_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, folder = paint(tmp_path / "images"), tmp_path / "cache"
    decode = embed_module.decode

    by_content = {path.read_bytes(): path for path in (tmp_path / "images").iterdir()}

    def remove_and_decode(
        source: bytes, view: View, size: tuple[int, int], *, digest: str
    ) -> object:
        by_content[source].unlink()
        return decode(source, view, size, digest=digest)

    monkeypatch.setattr(embed_module, "decode", remove_and_decode)
    embedded = embed(images, MeanColours(), View(), cache=cache_in(folder, MeanColours()))
    check_colours(embedded, COLOURS)
    assert not any((tmp_path / "images").iterdir())


def test_a_file_that_went_away_is_set_aside(tmp_path: Path) -> None:
    images = paint(tmp_path / "images")
    (tmp_path / "images" / "5.png").unlink()
    embedded = embed(images, MeanColours(), View())
    check_colours(embedded, COLOURS[:5])
    reason = "cannot be read: No such file or directory"
    assert embedded.images.set_aside == (SetAside("5.png", reason),)


def test_other_views_and_backbones_have_their_own_entries(tmp_path: Path) -> None:
    images, folder = paint(tmp_path / "images"), tmp_path / "cache"
    mask = tmp_path / "mask.png"
    Image.new("L", (8, 8), 255).save(mask)
    cases = [
        (MeanColours(), View()),
        (MeanColours(sha256="other"), View()),
        (MeanColours(), View(fit="pad")),
        (MeanColours(), View(roi=(0, 0, 0.5, 0.5))),
        (MeanColours(), View(tiles=(1, 2))),
        (MeanColours(), View(window=(0, 100))),
        (MeanColours(), View(mask=mask)),
    ]
    for number, (backbone, view) in enumerate(cases, 1):
        embed(images, backbone, view, cache=cache_in(folder, backbone, view))
        assert sum(backbone.batches) == 6 * view.layout[0] * view.layout[1]
        assert len(bag_files(folder)) == 6 * number
    # How large an image may be does not decide what is in its bag, only whether there is one.
    more = View(max_pixels=2 * View().max_pixels)
    idle = MeanColours(fails_after=0)
    embed(images, idle, more, cache=cache_in(folder, idle, more))
    assert idle.batches == []
    few = View(max_pixels=1)
    with pytest.raises(InputError, match="too large"):
        embed(images, MeanColours(), few, cache=cache_in(folder, MeanColours(), few))


def test_another_input_size_is_another_setting() -> None:
    small, large = MeanColours(), MeanColours()
    large.info = BackboneInfo("colours", "colours", "none", "a test", (16, 16))
    assert cache_setting(small, View()) != cache_setting(large, View())


def test_a_cache_that_is_too_small_is_pruned_after_the_run(tmp_path: Path) -> None:
    images, folder = paint(tmp_path / "images"), tmp_path / "cache"
    backbone = MeanColours()
    size = 32 + 32 + 16 * 3 * 2
    cache = BagCache(folder, cache_setting(backbone, View()), limit=4 * size)
    check_colours(embed(images, backbone, View(), cache=cache), COLOURS)
    assert [path.stat().st_size for path in bag_files(folder)] == [size] * 4


def test_a_cache_that_cannot_be_written_does_not_fail_the_run(tmp_path: Path) -> None:
    images = paint(tmp_path / "images")
    (tmp_path / "cache").write_text("a file where the folder should be", "utf-8")
    for _ in range(2):
        backbone = MeanColours()
        cache = cache_in(tmp_path / "cache", backbone)
        check_colours(embed(images, backbone, View(), cache=cache), COLOURS)
        assert sum(backbone.batches) == 6


# ---- tiles ----


@pytest.mark.parametrize(("at_once", "fed"), [(2, [2, 2, 2]), (4, [2, 4]), (1, [1] * 6)])
def test_tiles_lie_in_one_grid_where_they_were_cut(at_once: int, fed: list[int]) -> None:
    backbone, view = MeanColours(), View(tiles=(2, 3), overlap=False)
    canvas = np.zeros((16, 24, 3), np.uint8)
    for number, colour in enumerate(COLOURS):
        row, col = divmod(number, 3)
        canvas[row * 8 : row * 8 + 8, col * 8 : col * 8 + 8] = colour
    embedded = embed(array_images([canvas]), backbone, view, batch_frames=at_once)
    assert embedded.bags.grid == (8, 12)
    assert sorted(backbone.batches) == fed
    grid = embedded.bags.patches[0].reshape(8, 12, 3)
    for row in range(8):
        for col in range(12):
            colour = COLOURS[row // 4 * 3 + col // 4]
            np.testing.assert_allclose(grid[row, col], direction(colour), atol=1e-3)


def test_patches_keep_their_place_within_a_tile() -> None:
    backbone = MeanColours()
    pictures = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3)).astype(np.uint8)
    # Two images of four tiles a batch.
    view = View(tiles=(2, 2), overlap=False)
    embedded = embed(array_images(pictures), backbone, view, batch_frames=8)
    assert sorted(backbone.batches) == [4, 8]
    assert embedded.bags.tile == (4, 4)
    for picture, bag in zip(pictures, embedded.bags.patches, strict=True):
        grid = bag.reshape(8, 8, 3)
        for top in (0, 1):
            for left in (0, 1):
                tile = picture[top * 8 : top * 8 + 8, left * 8 : left * 8 + 8]
                pixels = tile.transpose(2, 0, 1)[None] / np.float32(255)
                alone, _ = patch_embeddings(MeanColours().feature_maps(pixels))
                found = grid[top * 4 : top * 4 + 4, left * 4 : left * 4 + 4]
                np.testing.assert_allclose(found, alone.reshape(4, 4, 3), atol=1e-3)


def test_where_tiles_overlap_the_nearer_one_is_taken(tmp_path: Path) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (30, 58, 3)).astype(np.uint8)
    backbone, view = WideColours(), View(tiles=(2, 4))
    cache = cache_in(tmp_path, backbone, view)
    for _ in range(2):  # computed, and from the cache
        bags = embed(array_images([picture]), backbone, view, cache=cache).bags
        # Tiles of 16 pixels and 8 patches, 14 pixels apart.
        assert (bags.grid, bags.tile) == ((15, 29), (8, 8))
        means = picture.reshape(15, 2, 29, 2, 3).mean(axis=(1, 3))
        found = bags.patches[0].reshape(15, 29, 3).astype(np.float64)
        expected = means / np.linalg.norm(means, axis=2, keepdims=True)
        np.testing.assert_allclose(found, expected, atol=2e-3)
    assert embed(array_images([picture]), backbone, View()).bags.tile is None


def test_a_grid_that_does_not_divide_the_step_is_off_by_half_a_patch_at_most() -> None:
    # 18 patches of 14 pixels; tiles are 221 pixels apart.
    for n_tiles in (2, 5, 16):
        canvas = (n_tiles - 1) * 221 + 252
        tile, cell = _joined(n_tiles, 221, canvas, 252, 18)
        assert len(tile) == round(canvas / 14)
        taken = tile * 221 + (cell + 0.5) * 14
        wanted = (np.arange(len(tile)) + 0.5) * canvas / len(tile)
        assert np.abs(taken - wanted).max() <= 7.5
        assert (np.diff(tile) >= 0).all()
        assert set(tile) == set(range(n_tiles))


# ---- padding and masks ----


def test_padding_is_not_valid_and_holds_a_copy_of_a_valid_patch(tmp_path: Path) -> None:
    wide = np.zeros((4, 8, 3), np.uint8)
    wide[:, :4], wide[:, 4:] = COLOURS[0], COLOURS[1]
    square = np.full((8, 8, 3), COLOURS[2], np.uint8)
    images, view = array_images([square, wide, square // 2]), View(fit="pad")
    cache = cache_in(tmp_path, MeanColours(), view)
    for _ in range(2):  # computed, and then from the cache
        bags = embed(images, MeanColours(), view, cache=cache).bags
        assert bags.valid is not None
        expected = np.ones((3, 4, 4), bool)
        expected[1, [0, 3]] = False
        np.testing.assert_array_equal(bags.valid, expected.reshape(3, 16))
        np.testing.assert_array_equal(
            bags.patches[1][~bags.valid[1]], np.repeat(bags.patches[1, [4]], 8, axis=0)
        )
        np.testing.assert_allclose(bags.patches[1, 4], direction(COLOURS[0]), atol=1e-3)
        np.testing.assert_allclose(bags.patches[1, 11], direction(COLOURS[1]), atol=1e-3)


def test_what_is_valid_moves_up_with_the_rows_when_a_file_is_bad(tmp_path: Path) -> None:
    (tmp_path / "0.png").write_bytes(b"torn")
    Image.new("RGB", (8, 8), COLOURS[0]).save(tmp_path / "1.png")
    Image.new("RGB", (8, 4), COLOURS[1]).save(tmp_path / "2.png")
    bags = embed(find_images(tmp_path), MeanColours(), View(fit="pad")).bags
    assert bags.valid is not None
    np.testing.assert_array_equal(bags.valid.sum(axis=1), [16, 8])


def test_patches_outside_a_mask_are_not_valid(tmp_path: Path) -> None:
    inside = np.zeros((8, 8), np.uint8)
    inside[0, 0] = inside[7, 7] = 255  # so little of the corners is not enough
    inside[2:6, 2:5] = 255  # two whole columns of pixels, and one that is half a patch
    Image.fromarray(inside).save(tmp_path / "mask.png")
    view = View(mask=tmp_path / "mask.png")
    bags = embed(array_images([np.full((8, 8, 3), 99, np.uint8)]), MeanColours(), view).bags
    assert bags.valid is not None
    expected = np.zeros((4, 4), bool)
    expected[1:3, 1:3] = True
    np.testing.assert_array_equal(bags.valid[0].reshape(4, 4), expected)


def test_an_image_of_which_no_patch_is_inside_is_set_aside(tmp_path: Path) -> None:
    inside = np.zeros((8, 8), np.uint8)
    inside[0, 0] = inside[7, 7] = 255
    Image.fromarray(inside).save(tmp_path / "mask.png")
    with pytest.raises(InputError, match="nothing of it lies inside the region of interest"):
        embed(
            array_images([np.full((8, 8, 3), 99, np.uint8)]),
            MeanColours(),
            View(mask=tmp_path / "mask.png"),
        )


@pytest.mark.parametrize("grid", [(1, 1), (4, 4), (3, 5), (8, 8)])
def test_the_share_inside_each_patch(grid: tuple[int, int]) -> None:
    inside = np.random.default_rng(0).random((8, 12)) > 0.5
    share = embed_module._share_inside(inside, grid).reshape(grid)
    rows = [round(8 * i / grid[0]) for i in range(grid[0] + 1)]
    cols = [round(12 * i / grid[1]) for i in range(grid[1] + 1)]
    for row in range(grid[0]):
        for col in range(grid[1]):
            part = inside[rows[row] : rows[row + 1], cols[col] : cols[col + 1]]
            assert share[row, col] == pytest.approx(part.mean())


# ---- a few of many ----


def test_a_batch_is_embedded_as_all_are(tmp_path: Path) -> None:
    paint(tmp_path)
    (tmp_path / "1.png").write_bytes(b"torn")
    (tmp_path / "copy of 2.png").write_bytes((tmp_path / "2.png").read_bytes())
    images = find_images(tmp_path)
    view = View(fit="pad")
    bags, usable = embed_batch(images, MeanColours(), view)
    whole = embed(images, MeanColours(), view)
    assert bags is not None
    np.testing.assert_array_equal(bags.patches, whole.bags.patches)
    assert bags.grid == whole.bags.grid
    assert usable == whole.images
    assert usable.names == ("0.png", "2.png", "3.png", "4.png", "5.png", "copy of 2.png")
    assert [entry.name for entry in usable.set_aside] == ["1.png"]


def test_a_batch_without_a_usable_image_says_why(tmp_path: Path) -> None:
    for name in ("x.png", "y.png"):
        (tmp_path / name).write_bytes(b"torn " + name[:1].encode())
    (tmp_path / "z.png").write_bytes(b"torn x")
    images = find_images(tmp_path)
    before = ImageSet(images.names, images.sources, images.digests, (SetAside("old", "known"),))
    bags, usable = embed_batch(before, MeanColours(), View())
    assert bags is None
    assert len(usable) == 0
    assert [entry.name for entry in usable.set_aside] == ["old", "x.png", "y.png", "z.png"]
    assert all(entry.reason for entry in usable.set_aside)


def test_a_batch_uses_the_cache_and_leaves_it_as_large_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, backbone = paint(tmp_path / "images"), MeanColours()
    cache = cache_in(tmp_path / "cache", backbone)

    def prune() -> None:
        raise AssertionError("a look at all of a cache takes longer than a batch")

    monkeypatch.setattr(cache, "prune", prune)
    first, _ = embed_batch(images.take([0, 1, 2]), backbone, View(), cache)
    assert len(bag_files(tmp_path / "cache")) == sum(backbone.batches) == 3
    again, _ = embed_batch(images.take([2, 0, 3]), backbone, View(), cache)
    assert sum(backbone.batches) == 4
    assert first is not None
    assert again is not None
    np.testing.assert_array_equal(again.patches[:2], first.patches[[2, 0]])


def test_large_files_are_read_by_the_thread_that_decodes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, backbone = paint(tmp_path / "images"), MeanColours()
    asked: list[object] = []

    def watched(content: object, *given: Any, **options: Any) -> object:
        asked.append(content)
        return decode(content, *given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(embed_module, "decode", watched)
    usual = embed(images, backbone, View())
    assert all(isinstance(content, bytes) for content in asked)
    asked.clear()
    monkeypatch.setattr(embed_module, "LARGEST_READ_AHEAD", 10)
    again = embed(images, backbone, View())
    assert {type(content) for content in asked} == {type(tmp_path)}
    np.testing.assert_array_equal(usual.bags.patches, again.bags.patches)
    changed = images.sources[0]
    assert isinstance(changed, Path)
    Image.new("RGB", (8, 8), (1, 2, 3)).save(changed)
    found = embed(images, backbone, View()).images.set_aside
    assert {entry.reason for entry in found} == {"it changed while it was being read"}


def test_what_the_budget_is_too_small_for_is_set_aside(tmp_path: Path) -> None:
    """Also where its bag is in the cache from a run with more memory."""
    images, backbone, folder = paint(tmp_path / "images"), MeanColours(), tmp_path / "cache"
    Image.new("RGB", (3000, 3000), (200, 0, 0)).save(tmp_path / "images/large.png")
    images = find_images(tmp_path / "images")

    def found() -> tuple[int, dict[str, str]]:
        cache = BagCache(folder, cache_setting(backbone, View()), memory=BUDGET.limit)
        embedded = embed(images, backbone, View(), cache=cache).images
        return len(embedded), {one.name: one.reason for one in embedded.set_aside}

    assert found() == (len(images), {})
    with BUDGET.limited(1):
        n_images, aside = found()
    assert n_images == len(images) - 1
    assert list(aside) == ["large.png"]
    assert aside["large.png"].startswith("too large: decoding it takes")
