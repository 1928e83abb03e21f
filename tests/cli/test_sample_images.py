"""The demo's images: counts, names that tell nothing, and flaws that can be seen."""

from __future__ import annotations

import csv
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from flawsort.cli.sample_images import KINDS, N_GOOD, _picture, make_demo_images


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo")
    parts, good = make_demo_images(folder)
    assert (parts, good) == (folder / "parts", folder / "good")
    return folder


def truth(folder: Path) -> dict[str, str]:
    with (folder / "truth.csv").open(newline="", encoding="utf-8") as file:
        return {row["path"]: row["label"] for row in csv.DictReader(file)}


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"), dtype=float)


def test_counts_and_neutral_names(demo: Path) -> None:
    names = sorted(path.name for path in (demo / "parts").iterdir())
    assert len(names) == sum(KINDS.values()) + 2
    assert len(list((demo / "good").iterdir())) == N_GOOD
    assert all(re.fullmatch(r"part-\d{4}\.png", name) for name in names)
    labels = truth(demo)
    counts = {kind: list(labels.values()).count(kind) for kind in KINDS}
    assert counts == KINDS | {"scratch": KINDS["scratch"] + 1}


def test_kinds_are_shuffled(demo: Path) -> None:
    labels = list(truth(demo).values())
    changes = sum(a != b for a, b in itertools.pairwise(labels))
    assert changes > len(labels) / 2


def test_one_copy_and_one_file_cut_short(demo: Path) -> None:
    contents = [path.read_bytes() for path in sorted((demo / "parts").iterdir())]
    assert len(set(contents)) == len(contents) - 1
    unread = {path.name for path in (demo / "parts").iterdir()} - set(truth(demo))
    assert len(unread) == 1
    with pytest.raises(OSError, match="truncated"):
        pixels(demo / "parts" / unread.pop())


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"good"}))
@pytest.mark.parametrize("seed", range(4))
def test_a_flaw_changes_its_place_clearly_and_nothing_else(kind: str, seed: int) -> None:
    flawed, good = (
        np.asarray(_picture(which, np.random.default_rng(seed)), dtype=float)
        for which in (kind, "good")
    )
    assert flawed.shape == (256, 256, 3)
    change = np.abs(flawed - good).max(axis=2)
    assert 30 < (change > 40).sum() < 0.06 * change.size
    assert (change == 0).mean() > 0.9


def test_good_parts_differ_a_little_from_each_other(demo: Path) -> None:
    good = np.stack([pixels(path) for path in sorted((demo / "good").iterdir())])
    assert good.shape == (N_GOOD, 256, 256, 3)
    apart = np.abs(good[1:] - good[:-1]).mean(axis=(1, 2, 3))
    assert apart.min() > 2
    assert apart.max() < 20


def test_same_seed_same_files_other_seed_other_files(tmp_path: Path) -> None:
    few = dict.fromkeys(KINDS, 1)
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        make_demo_images(tmp_path / name, random_state=seed, kinds=few, n_good=1)
    one, same, other = (
        {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in ("one", "same", "other")
    )
    assert len(one) == len(KINDS) + 4
    assert one == same
    assert one["good-0001.png"] != other["good-0001.png"]
