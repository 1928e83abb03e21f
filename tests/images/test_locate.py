"""Where boxes of a view lie in the image: a rectangle that was drawn is found where it was."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from flawsort import View
from flawsort.core.records import RemoteFile, Source
from flawsort.images.decode import upright_size
from flawsort.images.view import UnreadableImage, decode, locate
from helpers.picture_files import noise, save, tiff

Array = NDArray[Any]
Rectangle = tuple[int, int, int, int]

SIZE = (96, 64)  # of a backbone that is not square
LIMIT = 10**9
WHOLE = np.array([[0.0, 0.0, 1.0, 1.0]])
# Width and height of an image, and in pixels a rectangle that every view below shows.
IMAGES = [
    ((320, 200), (155, 80, 190, 115)),
    ((150, 310), (70, 130, 100, 175)),
    ((90, 90), (40, 38, 55, 50)),
]
VIEWS = {
    "whole": {},
    "fractions": {"roi": (0.2, 0.3, 0.9, 0.75)},
    "odd fractions": {"roi": (0.213, 0.117, 0.877, 0.909)},
    "pixels": {"roi": (21, 15, 10_000, 280.5)},
    "one corner": {"roi": (30, 20, 10_000, 10_000)},
}
# As an image is stored, and how it is turned back.
STORED = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


def drawing(size: tuple[int, int], rectangle: Rectangle) -> Array:
    """Black, with a white rectangle: left, top, right, bottom."""
    left, top, right, bottom = rectangle
    picture = np.zeros((size[1], size[0], 3), np.uint8)
    picture[top:bottom, left:right] = 255
    return picture


def frame(source: Source, view: View) -> Array:
    """(height, width): the view with its tiles put together again."""
    canvas = decode(source, view, SIZE).canvas[0]
    return canvas / 255 if canvas.dtype == np.uint8 else canvas


def seen_box(picture: Array) -> Array:
    """(1, 4): where it is bright, in fractions."""
    down, across = np.nonzero(picture > 0.5)
    height, width = picture.shape
    low = [across.min() / width, down.min() / height]
    return np.array([[*low, (across.max() + 1) / width, (down.max() + 1) / height]])


def assert_found(source: Source, view: View, size: tuple[int, int], rectangle: Rectangle) -> None:
    """The rectangle is where it was drawn, but for the pixels of the view and for rounding."""
    picture = frame(source, view)
    boxes = seen_box(picture)
    before = boxes.copy()
    found = locate(boxes, view, SIZE, source)
    np.testing.assert_array_equal(boxes, before)
    assert found.shape == (1, 4)
    across, down = locate(WHOLE, view, SIZE, source)[0].reshape(2, 2).T * np.array([size]).T
    pixel = max(np.diff(across)[0] / picture.shape[1], np.diff(down)[0] / picture.shape[0])
    np.testing.assert_allclose(found[0] * [*size, *size], rectangle, atol=max(1.0, pixel) + 0.5)


@pytest.mark.parametrize("tiles", [(1, 1), (2, 3)])
@pytest.mark.parametrize("shown", VIEWS)
@pytest.mark.parametrize("fit", ["stretch", "pad", "crop"])
@pytest.mark.parametrize(("size", "rectangle"), IMAGES)
def test_a_rectangle_is_found_where_it_was_drawn(
    size: tuple[int, int], rectangle: Rectangle, fit: Any, shown: str, tiles: tuple[int, int]
) -> None:
    view = View(fit=fit, tiles=tiles, **VIEWS[shown])  # type: ignore[arg-type]
    assert_found(drawing(size, rectangle), view, size, rectangle)


@pytest.mark.parametrize("fit", ["stretch", "pad", "crop"])
@pytest.mark.parametrize(("size", "rectangle"), IMAGES)
def test_through_a_mask(
    tmp_path: Path, size: tuple[int, int], rectangle: Rectangle, fit: Any
) -> None:
    inside = np.zeros((40, 50), np.uint8)  # stretched to the image
    inside[6:33, 10:48] = 255
    inside[10:20, 10:20] = 0
    view = View(fit=fit, mask=save(tmp_path / "mask.png", inside))
    assert_found(drawing(size, rectangle), view, size, rectangle)
    if fit == "stretch":
        whole = locate(WHOLE, view, SIZE, drawing(size, rectangle))[0] * [*size, *size]
        exact = np.array([10 / 50, 6 / 40, 48 / 50, 33 / 40]) * [*size, *size]
        np.testing.assert_allclose(whole, exact, atol=1)


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("ending", ["png", "jpg", "webp", "tif"])
def test_files_that_are_turned(tmp_path: Path, ending: str, orientation: int) -> None:
    size, rectangle = (120, 80), (70, 50, 100, 62)
    upright = Image.fromarray(drawing(size, rectangle))
    turn = STORED[orientation]
    stored = upright if turn is None else upright.transpose(turn)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / f"turned.{ending}", stored, exif=exif)
    assert upright_size(path, LIMIT) == size
    for view in (
        View(fit="pad"),
        View(fit="crop", roi=(0.4, 0.3, 1, 1)),
        View(roi=(50, 0, 120, 70)),
    ):
        assert_found(path, view, size, rectangle)


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("compression", [1, 5, 8])
def test_turned_tiffs_of_other_makers(tmp_path: Path, compression: int, orientation: int) -> None:
    for values in (noise(20, 30, 3), noise(20, 30, 1, dtype="u2")):
        content = tiff(values, compression=compression, orientation=orientation)
        path = save(tmp_path / "x.tif", content)
        assert upright_size(path, LIMIT) == ((30, 20) if orientation < 5 else (20, 30))


def test_a_large_jpeg_which_is_read_small(tmp_path: Path) -> None:
    size, rectangle = (1601, 1203), (803, 517, 1100, 690)
    path = save(tmp_path / "large.jpg", Image.fromarray(drawing(size, rectangle)), quality=90)
    for fit in ("pad", "crop"):
        view = View(fit=fit)
        found = locate(seen_box(frame(path, view)), view, SIZE, path)[0] * [*size, *size]
        np.testing.assert_allclose(found, rectangle, atol=1.5 * size[0] / SIZE[1])


def test_arrays_of_any_kind() -> None:
    for array in (noise(20, 30), noise(20, 30, 1), noise(20, 30, 4), noise(20, 30, dtype="u2")):
        assert upright_size(array, 1) == (30, 20)
    grey = drawing((90, 70), (30, 20, 50, 44))[..., 0]
    assert_found(grey, View(fit="pad", roi=(0.1, 0.1, 0.9, 0.8)), (90, 70), (30, 20, 50, 44))


def test_exact_places() -> None:
    picture = noise(200, 400, 3)
    boxes = np.array([[0, 0, 1, 1], [0.25, 0.5, 0.5, 0.75]])

    def places(view: View) -> Any:
        return (locate(boxes, view, (100, 100), picture) * [400, 200, 400, 200]).tolist()

    assert places(View(roi=(100, 50, 300, 150))) == [[100, 50, 300, 150], [150, 100, 200, 125]]
    assert places(View(roi=(0.5, 0, 1, 1))) == [[200, 0, 400, 200], [250, 100, 300, 150]]
    assert places(View(fit="crop")) == [[100, 0, 300, 200], [150, 100, 200, 150]]
    # Of what is padding nothing is left.
    assert places(View(fit="pad")) == [[0, 0, 400, 200], [100, 100, 200, 200]]
    cut = View(fit="pad", roi=(100, 0, 200, 200))
    assert places(cut) == [[100, 0, 200, 200], [100, 100, 150, 150]]
    # As wide as two tiles next to each other, all of it is shown.
    wide = View(fit="crop", tiles=(1, 2), overlap=False)
    assert places(wide) == [[0, 0, 400, 200], [100, 100, 200, 150]]


def test_a_box_of_padding_alone_lies_on_the_edge() -> None:
    above = np.array([[0.2, 0.0, 0.6, 0.1]])
    found = locate(above, View(fit="pad"), (100, 100), noise(20, 80, 3))
    np.testing.assert_allclose(found, [[0.2, 0, 0.6, 0]])


def test_the_whole_image_stretched_is_not_looked_at(tmp_path: Path) -> None:
    boxes = np.array([[0.1, 0.2, 0.3, 0.4]])
    for view in (View(), View(tiles=(2, 2)), View(resample="bicubic")):
        np.testing.assert_array_equal(locate(boxes, view, SIZE, tmp_path / "gone.png"), boxes)


def test_no_boxes() -> None:
    found = locate(np.empty((0, 4)), View(fit="pad"), SIZE, noise(20, 30, 3))
    assert found.shape == (0, 4)


def test_images_of_no_use(tmp_path: Path) -> None:
    view = View(fit="pad", max_pixels=599)
    with pytest.raises(UnreadableImage, match="cannot be read: No such file"):
        locate(WHOLE, view, SIZE, tmp_path / "gone.png")
    with pytest.raises(UnreadableImage, match=r"too large: 30 x 20 = 600 pixels"):
        locate(WHOLE, view, SIZE, save(tmp_path / "large.png", noise(20, 30, 3)))
    with pytest.raises(UnreadableImage, match="not an image"):
        upright_size(save(tmp_path / "text.png", b"no image"), LIMIT)
    with pytest.raises(UnreadableImage, match=r"the roi 50,0,60,10 lies outside its 30 x 20"):
        locate(WHOLE, View(roi=(50, 0, 60, 10)), SIZE, noise(20, 30, 3))


@pytest.mark.skipif(
    find_spec("fsspec") is None, reason="fsspec is not installed: pip install 'flawsort[ray]'"
)
def test_behind_a_url() -> None:
    import fsspec

    size, rectangle = (120, 80), (70, 50, 100, 62)
    stream = io.BytesIO()
    Image.fromarray(drawing(size, rectangle)).save(stream, "PNG")
    store = fsspec.filesystem("memory")
    store.pipe_file("/located/x.png", stream.getvalue())
    assert_found(RemoteFile("memory://located/x.png"), View(fit="pad"), size, rectangle)
    with pytest.raises(UnreadableImage, match="cannot be read"):
        upright_size(RemoteFile("memory://located/none.png"), LIMIT)
    store.rm("/located", recursive=True)
