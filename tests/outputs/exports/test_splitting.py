"""Training and validation: what belongs together is on one side, and nothing repeats over both."""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from flawsort import Run
from flawsort.outputs.exports.content import find_pictures, gather_content
from flawsort.outputs.exports.splitting import (
    ALIKE,
    FIRST,
    VALIDATION_SHARE,
    alike,
    choose_sides,
    copy_keys,
    details,
    join,
    split,
)
from helpers.export_runs import named
from helpers.runs import build_run

Array = np.ndarray[Any, Any]


def digest(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()


def part(number: int, side: int = 96, grain_of: float = 20) -> Image.Image:
    """A part: the same ring on each, and a grain of its own."""
    rng = np.random.default_rng(number)
    rows, columns = np.mgrid[:side, :side] / side - 0.5
    ring = 90.0 * (np.abs(np.hypot(rows, columns) - 0.3) < 0.05)
    grain = Image.fromarray(rng.normal(0, 1, (side // 4, side // 4)).astype(np.float32), "F")
    own = np.asarray(grain.resize((side, side), Image.Resampling.BICUBIC)) * grain_of
    shade = 30 * rows * rng.normal()
    return Image.fromarray(np.clip(120 + ring + own + shade, 0, 255).astype(np.uint8))


def again(picture: Image.Image) -> dict[str, Image.Image]:
    """Photos that nearly repeat one."""
    stream = io.BytesIO()
    picture.convert("RGB").save(stream, "JPEG", quality=75)
    noise = np.random.default_rng(0).normal(0, 4, (picture.height, picture.width))
    grey = np.asarray(picture, np.float64)
    slope = np.linspace(0.9, 1.1, picture.width)
    return {
        "jpeg": Image.open(stream).convert("L"),
        "brighter": ImageEnhance.Brightness(picture).enhance(1.05),
        "noise": Image.fromarray(np.clip(grey + noise, 0, 255).astype(np.uint8)),
        "light": Image.fromarray(np.clip(grey * slope, 0, 255).astype(np.uint8)),
        "smaller": picture.resize((80, 80), Image.Resampling.LANCZOS),
    }


def make(folder: Path, pictures: list[Image.Image], clusters: list[int] | None = None) -> Run:
    """A run of photos, without thumbnails."""
    folder.mkdir(parents=True)
    paths = [folder / f"{number:03d}.png" for number in range(len(pictures))]
    for picture, path in zip(pictures, paths, strict=True):
        picture.save(path)
    return build_run(
        clusters or [number % 2 for number in range(len(pictures))],
        names=[path.name for path in paths],
        table={
            "path": [str(path) for path in paths],
            "sha256": [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths],
        },
    )


def looked(run: Run, **choices: Any) -> tuple[Any, Any]:
    content = gather_content(run, named(run), **choices)
    return content, find_pictures(content)[0]


class TestNearDuplicates:
    @pytest.mark.parametrize("way", ["jpeg", "brighter", "noise", "light", "smaller"])
    def test_a_photo_that_nearly_repeats_another(self, tmp_path: Path, way: str) -> None:
        parts = [part(number) for number in range(12)]
        run = make(tmp_path / "parts", [*parts, again(parts[3])[way]])
        content, pictures = looked(run)
        assert alike(details(content, pictures, copy_keys(content, pictures))) == [(3, 12)]
        sides = choose_sides(content, pictures)
        assert (3 in sides.held_out) == (12 in sides.held_out)
        assert sides.repeats == 2

    def test_thumbnails_say_the_same(self, tmp_path: Path) -> None:
        parts = [part(number) for number in range(12)]
        run = make(tmp_path / "parts", [*parts, again(parts[3])["noise"]])

        def jpeg(path: str) -> bytes:
            stream = io.BytesIO()
            Image.open(path).convert("RGB").save(stream, "JPEG", quality=82)
            return stream.getvalue()

        run = replace(run, thumbnails=tuple(map(jpeg, run.table["path"])))
        content, pictures = looked(run)
        assert alike(details(content, pictures, copy_keys(content, pictures))) == [(3, 12)]

    def test_what_all_parts_have_in_common_says_nothing(self, tmp_path: Path) -> None:
        """Here the ring is much stronger than the grain."""
        parts = [part(number, grain_of=4) for number in range(10)]
        content, pictures = looked(make(tmp_path / "parts", parts))
        assert alike(details(content, pictures, copy_keys(content, pictures))) == []

    def test_flat_photos_repeat_nothing(self, tmp_path: Path) -> None:
        flat = [Image.new("L", (64, 64), 100 + number) for number in range(6)]
        content, pictures = looked(make(tmp_path / "parts", flat))
        vectors = details(content, pictures, copy_keys(content, pictures))
        assert not vectors.any()
        assert alike(vectors) == []

    @pytest.mark.parametrize("dim", [FIRST - 10, 2 * FIRST])
    def test_against_all_products(self, dim: int) -> None:
        rng = np.random.default_rng(dim)
        middles = rng.standard_normal((60, dim))
        vectors = np.repeat(middles, 4, axis=0) + 0.35 * rng.standard_normal((240, dim))
        vectors[:20] = rng.standard_normal((20, dim))
        vectors /= np.sqrt((vectors**2).sum(axis=1, keepdims=True))
        vectors[-3:] = 0
        half = vectors.astype(np.float16)
        expected = [
            (one, other)
            for one, other in itertools.combinations(range(240), 2)
            if np.dot(half[one].astype(np.float64), half[other].astype(np.float64)) >= ALIKE
        ]
        assert 0 < len(expected) < 60 * 6
        assert sorted(alike(half)) == expected

    def test_the_order_of_the_files_does_not_matter(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("flawsort.outputs.exports.splitting.MOST_MEASURED", 5)
        seen = []
        parts = [part(number) for number in range(8)]
        pictures = [*parts, again(parts[1])["jpeg"], again(parts[1])["noise"]]
        chosen = []
        for name, order in (("one", range(10)), ("two", [7, 9, 0, 8, 1, 2, 6, 5, 4, 3])):
            run = make(tmp_path / name, [pictures[at] for at in order], [0] * 10)
            content, found = looked(run)
            held = choose_sides(content, found).held_out
            chosen.append({run.table["sha256"][row] for row in held})
            vectors = details(content, found, copy_keys(content, found))
            seen.append({run.table["sha256"][one.row]: vectors[one.row].tobytes() for one in found})
        assert chosen[0] == chosen[1]
        assert seen[0] == seen[1]


class TestJoin:
    KEYS = tuple(digest(number) for number in range(6))

    def test_chains(self) -> None:
        found = join(self.KEYS, [(0, 4), (4, 2)], None)
        assert found[0] == found[2] == found[4] == min(self.KEYS[0], self.KEYS[2], self.KEYS[4])
        assert (found[1], found[3], found[5]) == (self.KEYS[1], self.KEYS[3], self.KEYS[5])

    def test_copies(self) -> None:
        keys = [*self.KEYS[:2], self.KEYS[0]]
        assert join(keys, [], None) == keys

    def test_lots(self) -> None:
        found = join(self.KEYS, [], ["a", "a", "b", "", "", "b"])
        assert found[0] == found[1] != found[2] == found[5]
        assert found[3:5] == list(self.KEYS[3:5])  # an unknown lot is none
        # More images of a lot do not change its key.
        assert join(self.KEYS[1:2], [], ["a"]) == found[:1]
        assert len(set(join(self.KEYS, [(0, 2)], ["a", "a", "b", "", "", "b"]))) == 3


class TestSplit:
    def test_lots_stay_together(self, tmp_path: Path) -> None:
        run = make(tmp_path / "parts", [part(number) for number in range(40)], [0, 1] * 20)
        (tmp_path / "lots.csv").write_text(
            "name,lot\n" + "".join(f"{name},{row // 4}\n" for row, name in enumerate(run.names))
        )
        content, pictures = looked(run, by=tmp_path / "lots.csv")
        sides = choose_sides(content, pictures)
        by_lot = [{row in sides.held_out for row in range(lot, lot + 4)} for lot in range(0, 40, 4)]
        assert all(len(found) == 1 for found in by_lot)
        assert 4 <= len(sides.held_out) <= 16
        assert sides.one_sided == ()

    def test_a_group_of_one_lot_is_told(self, tmp_path: Path) -> None:
        clusters = [1] * 4 + [0] * 20
        run = make(tmp_path / "parts", [part(number) for number in range(24)], clusters)
        rows = "".join(f"{name},{row // 4}\n" for row, name in enumerate(run.names))
        (tmp_path / "lots.csv").write_text("name,lot\n" + rows)
        sides = choose_sides(*looked(run, by=tmp_path / "lots.csv"))
        assert sides.one_sided == (1,)
        assert not {0, 1, 2, 3} & sides.held_out

    @pytest.mark.parametrize("seed", range(30))
    def test_the_share_is_kept_where_it_can_be(self, seed: int) -> None:
        """Few lots of any size: the choice by chance alone would often be far off."""
        rng = np.random.default_rng(seed)
        sizes = rng.integers(2, 9, 12)
        keys = [digest((seed, lot)) for lot in np.repeat(np.arange(12), sizes)]
        held = split(keys, [0] * len(keys))
        share = sum(key in held for key in keys) / len(keys)
        assert VALIDATION_SHARE / 2 - 0.02 <= share <= VALIDATION_SHARE * 2 + 0.02

    @pytest.mark.parametrize("share", [0.0, 1.0])
    def test_chance_may_hold_out_nothing_or_all(self, share: float) -> None:
        rng = np.random.default_rng(0)
        high: Callable[[], str] = lambda: f"{int((share < 0.5) * 2**31 + rng.integers(2**29)):08x}"  # noqa: E731
        keys = [high() + digest(number) for number in range(40)]
        groups = [number % 3 for number in range(40)]
        held = split(keys, groups)
        assert 0.1 <= len(held) / 40 <= 0.4
        for group in range(3):
            own = {key for key, one in zip(keys, groups, strict=True) if one == group}
            assert own & held
            assert own - held
