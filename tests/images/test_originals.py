"""Whole files as 8-bit pictures, and pieces of them."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from flawsort import RunError, View
from flawsort.images import originals
from flawsort.images.originals import aspect_of, cut, jpeg, kept_picture, whole_picture
from flawsort.images.view import UnreadableImage, frame_of, locate


def ramp(width: int = 40, height: int = 30) -> np.ndarray:
    """(height, width, 3): red by column, green by row."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([columns * 6, rows * 8, rows * 0 + 9], axis=2).astype(np.uint8)


def saved(picture: Image.Image, path: Path, **options: object) -> Path:
    picture.save(path, **options)
    return path


def test_the_whole_file_whatever_the_view_shows(tmp_path: Path) -> None:
    path = saved(Image.fromarray(ramp()), tmp_path / "a.png")
    for view in (View(), View(roi=(0.2, 0.2, 0.5, 0.5)), View(fit="crop"), View(fit="pad")):
        np.testing.assert_array_equal(np.asarray(whole_picture(path, view)), ramp())


def test_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    path = saved(Image.fromarray(ramp()), tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(np.asarray(whole_picture(path, View())), np.rot90(ramp(), -1))


def test_a_large_jpeg_may_come_smaller(tmp_path: Path) -> None:
    path = saved(Image.fromarray(ramp(40, 30)).resize((1600, 1200)), tmp_path / "a.jpg")
    assert whole_picture(path, View()).size == (1600, 1200)
    assert whole_picture(path, View(), enough=500).size == (800, 600)
    assert whole_picture(path, View(roi=(0, 0, 0.5, 0.5)), enough=100).size == (200, 150)


@pytest.mark.parametrize("rows", [7, 256])
def test_deep_images_are_shown_by_their_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(originals, "ROWS_AT_ONCE", rows)
    deep = (ramp()[..., 0].astype(np.uint16) * 100) + 500
    path = saved(Image.fromarray(deep), tmp_path / "a.tif")
    shown = np.asarray(whole_picture(path, View(window=(500, 24500))))
    assert shown.dtype == np.uint8
    np.testing.assert_allclose(shown, (deep - 500) / 24000 * 255, atol=0.51)
    floats = np.repeat(ramp()[..., :1], 3, axis=2).astype(np.float32) / 255
    np.testing.assert_array_equal(np.asarray(whole_picture(floats, View()))[..., 1], ramp()[..., 0])


def test_a_deep_photo_takes_little_more_than_its_pixels(tmp_path: Path) -> None:
    photo = np.zeros((2000, 3000), np.uint16)
    path = saved(Image.fromarray(photo), tmp_path / "a.tif")
    whole_picture(path, View(window=(0, 65535)))
    tracemalloc.start()
    try:
        whole_picture(path, View(window=(0, 65535)))
        assert tracemalloc.get_traced_memory()[1] < 4 * photo.nbytes
    finally:
        tracemalloc.stop()


def test_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(UnreadableImage, match="not an image"):
        whole_picture(tmp_path / "a.png", View())
    with pytest.raises(UnreadableImage, match="too large"):
        whole_picture(saved(Image.fromarray(ramp()), tmp_path / "b.png"), View(max_pixels=100))


def test_a_piece_has_the_pixels_of_the_file() -> None:
    picture = Image.fromarray(ramp())
    piece = cut(picture, (10, 5, 30, 25), (20, 20))
    np.testing.assert_array_equal(np.asarray(piece), ramp()[5:25, 10:30])
    assert cut(picture.convert("L"), (10, 5, 30, 25), (20, 20)).mode == "RGB"
    half = np.asarray(cut(picture, (10, 4, 30, 24), (10, 10)), int)
    means = ramp()[4:24, 10:30].reshape(10, 2, 10, 2, 3).mean(axis=(1, 3))
    assert abs(half - means)[2:-2, 2:-2].max() <= 2


@pytest.mark.parametrize(
    ("box", "rows", "columns"),
    [
        ((-5, -3, 15, 17), [0] * 3 + list(range(17)), [0] * 5 + list(range(15))),
        ((30, 20, 50, 40), [*range(20, 30), *[29] * 10], [*range(30, 40), *[39] * 10]),
        ((60, 0, 80, 20), list(range(20)), [39] * 20),
        ((-30, -30, -10, -10), [0] * 20, [0] * 20),
    ],
)
def test_beyond_the_border_its_pixels_are_repeated(
    box: tuple[int, int, int, int], rows: list[int], columns: list[int]
) -> None:
    piece = cut(Image.fromarray(ramp()), box, (20, 20))
    np.testing.assert_array_equal(np.asarray(piece), ramp()[np.ix_(rows, columns)])


def test_a_jpeg_keeps_thin_lines_in_their_colour() -> None:
    lines = np.zeros((32, 32, 3), np.uint8)
    lines[:, ::2] = (255, 0, 0)
    with Image.open(io.BytesIO(jpeg(Image.fromarray(lines), 92))) as opened:
        found = np.asarray(opened).astype(int)
    assert found[:, ::2, 0].min() > 200
    assert found[:, 1::2, 0].max() < 60


@pytest.mark.parametrize(
    ("view", "frame"),
    [
        (View(), (0, 0, 400, 200)),
        (View(roi=(0.25, 0, 0.75, 1)), (100, 0, 300, 200)),
        (View(fit="crop"), (100, 0, 300, 200)),
        (View(fit="pad"), (0, -100, 400, 300)),
    ],
)
def test_the_frame_that_the_patches_cover(
    view: View, frame: tuple[float, float, float, float], tmp_path: Path
) -> None:
    assert frame_of(view, (64, 64), (400, 200)) == frame
    path = saved(Image.new("L", (400, 200)), tmp_path / "a.png")
    box = np.array([[0.4, 0.4, 0.6, 0.6]])
    left, top, right, bottom = frame
    across, down = right - left, bottom - top
    wanted = [left + 0.4 * across, top + 0.4 * down, left + 0.6 * across, top + 0.6 * down]
    found = locate(box, view, (64, 64), path)[0] * [400, 200, 400, 200]
    np.testing.assert_allclose(found, wanted)


class TestKeptPictures:
    """Runs may come from anybody."""

    def made(self, format: str, mode: str = "RGB", size: tuple[int, int] = (40, 30)) -> bytes:
        content = io.BytesIO()
        Image.new(mode, size).save(content, format)
        return content.getvalue()

    @pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
    def test_those_that_a_run_has(self, mode: str) -> None:
        content = self.made("JPEG", mode, (512, 256))
        assert aspect_of(content) == 2
        assert (kept_picture(content).mode, kept_picture(content).size) == ("RGB", (512, 256))
        assert kept_picture(content, 100).width < 512

    def test_other_formats(self) -> None:
        for content in (self.made("PNG"), self.made("BMP"), b"", b"<script>"):
            for look in (kept_picture, aspect_of):
                with pytest.raises(RunError, match="must be a JPEG of at most"):
                    look(content)

    def test_nothing_is_decoded_that_is_larger_than_any(self) -> None:
        content = self.made("JPEG").replace(b"\x00\x1e\x00\x28", (60_000).to_bytes(2, "big") * 2, 1)
        for look in (kept_picture, aspect_of):
            with pytest.raises(RunError, match="must be a JPEG of at most"):
                look(content)
        with pytest.raises(RunError, match="must be a JPEG of at most"):
            aspect_of(self.made("JPEG", size=(4096, 1025)))

    def test_half_of_one(self) -> None:
        content = self.made("JPEG", size=(400, 300))
        with pytest.raises(RunError, match="must be a JPEG of at most"):
            kept_picture(content[: len(content) // 2])
