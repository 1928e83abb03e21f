"""The benchmark of large photos: what its photos show, and its table."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from helpers.plates import ROOT

SIDE = 96


@pytest.fixture(scope="module")
def script() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("large_photos")


@pytest.fixture
def category(tmp_path: Path) -> Path:
    """Grey normals, and red flaws with masks."""
    folder = tmp_path / "cloth"
    for name in ("train/good", "test/dot", "ground_truth/dot"):
        (folder / name).mkdir(parents=True)
    for number in range(14):
        noise = np.random.default_rng(number).integers(100, 140, (SIDE, SIDE, 3)).astype(np.uint8)
        Image.fromarray(noise).save(folder / "train" / "good" / f"{number}.png")
    flawed, mask = noise.copy(), np.zeros((SIDE, SIDE), np.uint8)
    flawed[20:30, 40:70], mask[20:30, 40:70] = (255, 0, 0), 255
    mask[80, 80] = 255
    Image.fromarray(flawed).save(folder / "test" / "dot" / "000.png")
    Image.fromarray(mask).save(folder / "ground_truth" / "dot" / "000_mask.png")
    return folder


def test_the_texture_is_mirrored_at_each_seam(script: ModuleType) -> None:
    texture = Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3))
    photo = np.asarray(script.laid_out(texture, (50, 70)))
    assert photo.shape == (50, 70, 3)
    np.testing.assert_array_equal(photo[:20, :20], photo[:20, 39:19:-1])
    np.testing.assert_array_equal(photo[:20, :20], photo[39:19:-1, :20])
    np.testing.assert_array_equal(photo[:20, :20], photo[:20, 40:60])


def test_the_largest_piece_of_a_mask_is_cut_out(script: ModuleType, category: Path) -> None:
    mask = category / "ground_truth" / "dot" / "000_mask.png"
    assert script.largest_piece(Image.open(mask)) == (40, 20, 70, 30)
    for size in (20, 60):
        flaw, shape = script.cut_out(category / "test" / "dot" / "000.png", mask, size)
        covered = np.asarray(shape) > 127
        across = np.flatnonzero(covered.any(axis=0))
        assert len(across) == pytest.approx(size, abs=3)
        red = np.asarray(flaw)[covered].mean(axis=0)
        assert red[0] > 200 > 80 > red[1]


def test_one_flaw_a_photo_and_the_same_photos_again(
    script: ModuleType, category: Path, tmp_path: Path
) -> None:
    line = ["--data", str(category), "--size", "150x210", "--flaws", "20", "40", "--photos", "2"]
    options = script.make_parser().parse_args([*line, "--good", "3", "--normals", "1"])
    photos = script.make_photos(category, tmp_path / "made", options)
    assert (len(photos.normals), len(photos.good), len(photos.tested)) == (1, 3, 7)
    pixels = [np.asarray(Image.open(path)).astype(int) for path in photos.tested]
    assert {values.shape for values in pixels} == {(150, 210, 3)}
    red = [int((values[..., 0] - values[..., 1] > 100).sum()) for values in pixels]
    assert red[:3] == [0, 0, 0]
    assert 0 < max(red[3:5]) < min(red[5:])
    again = script.make_photos(category, tmp_path / "again", options)
    for first, second in zip(photos.tested, again.tested, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_the_table(script: ModuleType, category: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.main(
        f"--data {category} --size 150x210 --flaws 40 --photos 2 --good 4 --normals 8 "
        "--ways shrunk 1x2 auto --preset fast".split()
    )
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:4] == ["set", "way", "tiles", "40 px"]
    assert [line[:3] for line in lines[2:]] == [
        ["cloth", "shrunk", "1x1"],
        ["cloth", "1x2", "1x2"],
        ["cloth", "auto", "1x1"],
    ]
    assert all(len(line) == len(lines[0]) for line in lines[2:])
    assert {line[3] for line in lines[2:]} == {"1.00"}


def test_without_masks(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "ground_truth").mkdir()
    with pytest.raises(SystemExit, match="has no masks"):
        script.find_flaws(tmp_path)
