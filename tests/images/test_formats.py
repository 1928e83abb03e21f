"""Which files are read, and what is said of the others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, features

from flawsort.core.errors import InputError
from flawsort.core.records import ImageSet
from flawsort.images import formats
from flawsort.images.decode import MAX_PIXELS, n_frames
from flawsort.images.find import array_images, find_images
from flawsort.images.formats import kinds_of_files, readable_suffixes, skipped_line
from flawsort.images.inputs import notes_on_files
from flawsort.images.view import UnreadableImage, View, decode

# A plugin as pillow-heif is one, for files that are a PNG after eight letters.
PLUGIN = """
from io import BytesIO
from PIL import Image, ImageFile

class Heif(ImageFile.ImageFile):
    format = "HEIF"

    def _open(self):
        self._inner = Image.open(BytesIO(self.fp.read()[8:]))
        self._mode, self._size, self.tile = "RGB", self._inner.size, []

    def load(self):
        self._im = self.im = self._inner.convert("RGB").im
        return Image.Image.load(self)

def register_heif_opener():
    Image.register_open("HEIF", Heif, lambda start: start.startswith(b"fakeheic"))
"""


@pytest.fixture
def fresh() -> Iterator[None]:
    """What is installed is asked again, before and after."""
    asked = (formats.readable_suffixes, formats.plugin_formats)
    for function in asked:
        function.cache_clear()
    yield
    for function in asked:
        function.cache_clear()


@pytest.fixture
def bare(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pillow without plugins, and without AVIF of its own."""
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    monkeypatch.setattr(features, "check", lambda name: False)


@pytest.fixture
def heif(
    fresh: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "pillow_heif.py").write_text(PLUGIN, "utf-8")
    monkeypatch.syspath_prepend(folder)
    yield
    Image.OPEN.pop("HEIF", None)
    while "HEIF" in Image.ID:
        Image.ID.remove("HEIF")
    sys.modules.pop("pillow_heif", None)


def fill(folder: Path, *names: str) -> Path:
    """A picture, and files of other kinds."""
    folder.mkdir(exist_ok=True)
    Image.new("L", (8, 8)).save(folder / "picture.png")
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"something else")
    return folder


# ---- counting ----


def test_files_are_counted_by_kind() -> None:
    names = ["b.MP4", "a.heic", "sub/c.HEIF", "d.heic", "e.gif", "README", "f.heic"]
    found = kinds_of_files(names)
    assert found == (("HEIC", 4), ("GIF", 1), ("MP4", 1), ("without a suffix", 1))
    assert kinds_of_files([]) == ()


def test_the_line_names_kinds_and_what_to_do() -> None:
    assert skipped_line(()) == ""
    assert skipped_line([("CSV", 1)]) == "Skipped 1 file: 1 CSV."
    line = skipped_line([("HEIC", 3), ("MP4", 1), ("AVIF", 1), ("NEF", 1)])
    assert line == (
        "Skipped 6 files: 3 HEIC (pip install pillow-heif reads them), "
        "1 AVIF (pip install pillow-avif-plugin reads them), "
        "1 MP4 (cut it into frames: ffmpeg -i VIDEO.mp4 -vf fps=1 frames/%05d.png), "
        "1 NEF (raw: convert it to TIFF)."
    )
    # Of several sources together, and of many kinds the most frequent ones.
    assert skipped_line([("CSV", 1), ("PDF", 1), ("CSV", 2)]) == "Skipped 4 files: 3 CSV, 1 PDF."
    many = [(f"K{number}", 10 - number) for number in range(9)]
    assert skipped_line(many).endswith("5 K5, 9 of 3 other kinds.")


def test_a_folder_counts_what_it_skips(tmp_path: Path, bare: None) -> None:
    folder = fill(tmp_path / "a", "1.heic", "sub/2.heic", "3.mp4", ".hidden.mp4", "list.csv")
    found = find_images(folder)
    assert found.names == ("picture.png",)
    assert found.skipped == (("HEIC", 2), ("CSV", 1), ("MP4", 1))
    assert found.take([0]).without(()).skipped == found.skipped
    assert not found.set_aside
    # What a pattern leaves out was not meant; what it includes counts.
    assert find_images(folder, glob="*.png").skipped == ()
    assert find_images(f"{folder}/*").skipped == (
        ("CSV", 1),
        ("HEIC", 1),
        ("MP4", 1),
    )
    other = fill(tmp_path / "b", "4.mp4")
    assert dict(find_images([folder, other]).skipped)["MP4"] == 2


def test_a_folder_of_skipped_files_says_what_to_do(tmp_path: Path, bare: None) -> None:
    (tmp_path / "1.heic").write_bytes(b"x")
    expected = r"Looked for \.png, .*\.gif\. Skipped 1 file: 1 HEIC \(pip install pillow-heif"
    with pytest.raises(InputError, match=rf"No images under .*{expected}"):
        find_images(tmp_path)
    with pytest.raises(InputError, match=r"No images match .* for \.png, .*1 HEIC"):
        find_images(f"{tmp_path}/*")


# ---- plugins ----


def test_without_a_plugin_its_files_are_skipped(bare: None) -> None:
    assert readable_suffixes() == formats.IMAGE_SUFFIXES
    assert formats.plugin_formats() == ()


def test_heic_is_read_where_the_plugin_is(tmp_path: Path, heif: None) -> None:
    fill(tmp_path)
    picture = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
    Image.fromarray(picture).save(tmp_path / "inner.png")
    content = (tmp_path / "inner.png").read_bytes()
    (tmp_path / "photo.HEIC").write_bytes(b"fakeheic" + content)
    found = find_images(tmp_path)
    assert found.names == ("inner.png", "photo.HEIC", "picture.png")
    assert found.skipped == ()
    pixels = decode(tmp_path / "photo.HEIC", View(), (8, 8))
    np.testing.assert_array_equal(pixels.canvas, picture.transpose(2, 0, 1))


@pytest.mark.skipif("avif" not in features.modules, reason="this pillow does not know AVIF")
def test_avif_is_read_where_pillow_can(tmp_path: Path, fresh: None) -> None:
    if not features.check("avif"):
        pytest.skip("this pillow was built without AVIF")
    Image.new("RGB", (16, 16), (200, 30, 30)).save(tmp_path / "a.avif")
    assert find_images(tmp_path).names == ("a.avif",)
    red = decode(tmp_path / "a.avif", View(), (8, 8)).frames[0, :, 4, 4]
    np.testing.assert_allclose(red * 255, [200, 30, 30], atol=8)


def test_a_file_named_by_hand_is_set_aside_with_a_reason(tmp_path: Path, bare: None) -> None:
    fill(tmp_path, "1.heic")
    assert find_images(tmp_path / "1.heic").names == ("1.heic",)
    with pytest.raises(UnreadableImage, match="not an image"):
        decode(tmp_path / "1.heic", View(), (8, 8))


# ---- pages and frames ----


def save_frames(path: Path, count: int) -> Path:
    frames = [Image.new("L", (8, 8), 20 * number) for number in range(count)]
    frames[0].save(path, save_all=True, append_images=frames[1:])
    return path


def test_only_the_first_page_is_taken_and_the_line_says_so(tmp_path: Path) -> None:
    for name, count in (("a.gif", 3), ("b.tif", 2), ("c.tiff", 1), ("d.tif", 1)):
        save_frames(tmp_path / name, count)
    assert n_frames(tmp_path / "a.gif", MAX_PIXELS) == 3
    images = find_images(tmp_path)
    assert images.names == ("a.gif", "b.tif", "c.tiff", "d.tif")
    assert notes_on_files(images) == [
        "2 files have several pages or frames; only the first was taken: a.gif (3), b.tif (2)."
    ]
    assert notes_on_files(images.take([1, 2])) == [
        "1 file has several pages or frames; only the first was taken: b.tif (2)."
    ]
    assert decode(tmp_path / "b.tif", View(), (8, 8)).frames.max() == 0


def test_few_files_are_listed_and_all_are_counted(tmp_path: Path) -> None:
    for number in range(5):
        save_frames(tmp_path / f"{number}.tif", 2)
    (note,) = notes_on_files(find_images(tmp_path))
    assert note.startswith("5 files have")
    assert note.endswith("0.tif (2), 1.tif (2), 2.tif (2) and 2 more.")


def test_unreadable_files_and_arrays_have_one_frame(tmp_path: Path) -> None:
    (tmp_path / "bad.tif").write_bytes(b"no image")
    Image.new("L", (8, 8)).save(tmp_path / "good.png")
    assert notes_on_files(find_images(tmp_path)) == []
    assert n_frames(tmp_path / "missing.tif", MAX_PIXELS) == 1
    assert n_frames(np.zeros((4, 4), np.uint8), MAX_PIXELS) == 1
    assert notes_on_files(array_images([np.zeros((4, 4), np.uint8)])) == []
    assert notes_on_files(ImageSet((), (), (), skipped=(("CSV", 2),))) == [
        "Skipped 2 files: 2 CSV."
    ]


def test_photos_of_phones_are_really_read(tmp_path: Path) -> None:
    """With the plugin itself, where it is installed: pip install 'flawsort[heic]'."""
    pillow_heif = pytest.importorskip("pillow_heif", reason="no pillow-heif")
    colour = (200, 40, 30)
    picture = Image.new("RGB", (64, 48), colour)
    picture.paste((20, 90, 200), (32, 0, 64, 48))
    pillow_heif.from_pillow(picture).save(tmp_path / "photo.heic", quality=95)
    images = find_images(tmp_path)
    assert images.names == ("photo.heic",)
    assert images.skipped == ()
    frame = decode(images.sources[0], View(), (48, 64)).frames[0]
    np.testing.assert_allclose(frame[:, 24, 8], np.array(colour) / 255, atol=0.05)
    np.testing.assert_allclose(frame[:, 24, 56], np.array([20, 90, 200]) / 255, atol=0.05)
