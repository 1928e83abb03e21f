"""Masks: read once, and what cannot be one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from flawsort.core.errors import InputError
from flawsort.images import mask as mask_module
from flawsort.images.view import UnreadableImage, View, decode
from helpers.picture_files import noise, png16, save

Saved = Callable[..., Path]


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    """Saves what it is given as a file of that name."""
    return lambda content, name="x.png", **options: save(tmp_path / name, content, **options)


def test_mask_is_read_once_and_again_when_it_changes(
    saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = View(mask=saved(np.ones((4, 4), np.uint8), "mask.png"))
    reads = []
    real = mask_module.load
    monkeypatch.setattr(mask_module, "load", lambda s, m, **o: reads.append(s) or real(s, m, **o))
    for _ in range(3):
        decode(noise(8, 8, 3), view, (4, 4))
    assert [source for source in reads if isinstance(source, Path)] == [view.mask]
    first = view.describe()["mask"]
    saved(np.eye(6, dtype=np.uint8), "mask.png")
    assert view.describe()["mask"] != first


def test_masks_that_cannot_be_used(saved: Saved, tmp_path: Path) -> None:
    clear = np.full((4, 4, 4), 255, np.uint8)
    clear[..., 3] = 0  # white, and wholly transparent
    for name, content in {"zero.png": np.zeros((4, 4), np.uint8), "clear.png": clear}.items():
        with pytest.raises(InputError, match=rf"mask '.*{name}' covers nothing.*in white") as error:
            decode(noise(4, 4, 3), View(mask=saved(content, name)), (4, 4))
        assert not isinstance(error.value, UnreadableImage)
    with pytest.raises(InputError, match=r"mask '.*t\.png' cannot be used: not an image"):
        View(mask=saved(b"text", "t.png")).describe()
    with pytest.raises(InputError, match=r"mask '.*gone\.png' cannot be read: No such file"):
        decode(noise(4, 4, 3), View(mask=tmp_path / "gone.png"), (4, 4))
    dot = np.zeros((100, 100), np.uint16)
    dot[0, 0] = 1
    view = View(mask=saved(png16(dot[..., None]), "dot.png"))
    assert decode(noise(100, 100, 3), view, (4, 4)).inside is None
    with pytest.raises(UnreadableImage, match="the mask leaves nothing of its 4 x 4 pixels"):
        decode(noise(4, 4, 3), view, (4, 4))
