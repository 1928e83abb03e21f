"""The values that become black and white in images of more than 8 bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from flawsort.images import window as window_module
from flawsort.images.window import measure_window
from helpers.picture_files import noise, png16, save, tiff

Saved = Callable[..., Path]


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    """Saves what it is given as a file of that name."""
    return lambda content, name="x.png", **options: save(tmp_path / name, content, **options)


def test_window_is_that_of_all_deep_images_in_any_order(saved: Saved) -> None:
    dark = noise(40, 50, 1, dtype="u2") // 8
    bright = 60000 + noise(30, 30, 1, dtype="u2") // 64
    sources = [
        saved(png16(dark), "d.png"),
        saved(tiff(bright), "b.tif"),
        noise(9, 9, dtype="u2"),
        saved(noise(50, 50, 3), "8bit.png"),
        saved(b"text", "bad.png"),
        np.ones((5, 5), np.float32),
    ]
    window = measure_window(sources)
    every = np.concatenate([dark.ravel(), bright.ravel(), noise(9, 9, dtype="u2").ravel()])
    assert window == pytest.approx(tuple(np.percentile(every, [0.1, 99.9])))
    assert measure_window(sources[::-1]) == window == measure_window(sources, threads=1)


def test_window_edges(saved: Saved) -> None:
    assert measure_window([]) is None
    assert measure_window([saved(noise(4, 4, 3)), np.zeros((3, 3))]) is None
    flat = measure_window([np.full((4, 4), 700, np.uint16)])
    assert flat == (700, 701)
    nans = np.array([[[np.nan], [1.0], [np.inf]]], np.float32)
    assert measure_window([saved(tiff(nans), "n.tif")]) == (1, 2)
    assert measure_window([saved(tiff(nans[:, :1]), "all-nan.tif")]) is None
    hidden = np.array([[[500, 65535], [9, 0]]], np.uint16)
    assert measure_window([saved(png16(hidden), "h.png")]) == (500, 501)
    truncated = saved(png16(noise(20, 20, 1, dtype="u2"))[:-300], "cut.png")
    assert measure_window([truncated]) is None
    # A sample sees every column, also where the width and the step share factors.
    columns = np.tile(np.arange(64, dtype=np.uint16), (64, 1))
    low, high = measure_window([columns], image_samples=256) or (0, 0)
    assert low < 1
    assert high > 62


def test_eight_bit_files_cost_a_header_only(saved: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(noise(4, 4, 3))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(window_module, "loaded", refuse)
    assert measure_window([path]) is None
