"""YOLO exports, read back by a parser of the format: what is in which class, and on which side."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from flawsort import Run
from flawsort.core.errors import InputError
from flawsort.labels.groups import Group, Labelling
from flawsort.outputs.exports import Choices, export_run
from flawsort.outputs.exports.content import find_pictures, gather_content
from flawsort.outputs.exports.splitting import VALIDATION_SHARE, split
from helpers.export_runs import HOSTILE_TITLES, NAMES, hostile, make_run, named, picture

IMAGE = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class Sample:
    """An image file. boxes: class, middle and size, in shares of the image."""

    file: Path
    side: str
    boxes: list[tuple[int, float, float, float, float]]

    @property
    def content(self) -> bytes:
        return self.file.read_bytes()


def read_names(folder: Path) -> tuple[dict[str, str], list[str]]:
    """The folders and the classes of data.yaml."""
    lines = (folder / "data.yaml").read_text("utf-8").split("\n")
    at = lines.index("names:")
    folders = dict(line.split(": ", 1) for line in lines[:at])
    names = []
    for line in lines[at + 1 :]:
        if line:
            number, quoted = re.fullmatch(r'  (\d+): "(.*)"', line).groups()  # type: ignore[union-attr]
            assert int(number) == len(names)
            names.append(unescaped(quoted))
    return folders, names


def unescaped(quoted: str) -> str:
    """A string of YAML in double quotes."""
    assert all(one.isprintable() for one in quoted)

    def found(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else match[2]

    return re.sub(r'\\(?:U([0-9a-f]{8})|(["\\]))', found, quoted)


def read_detect(folder: Path) -> tuple[list[Sample], list[str]]:
    """Images in images/SIDE, labels under the same path with /images/ as /labels/ and .txt."""
    folders, names = read_names(folder)
    assert folders == {"train": "images/train", "val": "images/val"}
    samples = []
    for side, place in folders.items():
        labels = set((folder / "labels" / side).iterdir())
        for file in sorted((folder / place).iterdir()):
            assert file.suffix.lower() in IMAGE
            label = folder / "labels" / side / f"{file.stem}.txt"
            labels.remove(label)  # each label belongs to one image
            boxes = []
            for line in label.read_text().splitlines():
                number, *values = line.split(" ")
                shares = [float(value) for value in values]
                assert 0 <= int(number) < len(names)
                assert len(shares) == 4
                assert all(0 <= value <= 1 for value in shares)
                boxes.append((int(number), *shares))
            samples.append(Sample(file, side, boxes))  # type: ignore[arg-type]
        assert not labels
    return samples, names


def read_classify(folder: Path) -> dict[str, dict[str, list[bytes]]]:
    """For each side the classes, which are its folders by name, with the images of each."""
    found = {
        side: {
            one.name: [file.read_bytes() for file in sorted(one.iterdir()) if file.suffix in IMAGE]
            for one in sorted((folder / side).iterdir())
        }
        for side in ("train", "val")
    }
    assert list(found["train"]) == list(found["val"])  # or the numbers of classes would differ
    return found


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "parts")


@pytest.fixture
def labelling(run: Run) -> Labelling:
    return named(run, "dent; deep", "streak")


def content_of(run: Run, row: int) -> bytes:
    return Path(run.table["path"][row]).read_bytes()


class TestDetect:
    def test_against_the_run(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        export_run(run, labelling, "yolo", tmp_path / "out")
        samples, names = read_detect(tmp_path / "out")
        assert names == ["dent; deep", "streak"]
        by_content = {sample.content: sample for sample in samples}
        assert len(by_content) == len(samples) == len(NAMES)
        content = gather_content(run, labelling)
        pictures, _ = find_pictures(content)
        for one in pictures:
            width, height = one.size
            expected = []
            for region in one.regions:
                if region.group >= 0:  # what is like no group is left out
                    rows, columns = np.nonzero(one.cut(region).whole())
                    left, right = columns.min() / width, (columns.max() + 1) / width
                    top, bottom = rows.min() / height, (rows.max() + 1) / height
                    middle = ((left + right) / 2, (top + bottom) / 2)
                    expected.append((region.group, *middle, right - left, bottom - top))
            found = by_content[content_of(run, one.row)].boxes
            np.testing.assert_allclose(
                np.reshape(found, (-1, 5)), np.reshape(expected, (-1, 5)), atol=1e-6
            )
        shown = {row: len(by_content[content_of(run, row)].boxes) for row in range(len(NAMES))}
        assert {row: n for row, n in shown.items() if n} == {0: 2, 1: 1, 5: 1}

    def test_regions_of_no_group_may_be_a_class(
        self, run: Run, labelling: Labelling, tmp_path: Path
    ) -> None:
        export_run(run, labelling, "yolo", tmp_path / "out", choices=Choices(unknown="mark"))
        samples, names = read_detect(tmp_path / "out")
        assert names == ["dent; deep", "streak", "Unknown"]
        by_content = {sample.content: sample for sample in samples}
        assert [box[0] for box in by_content[content_of(run, 6)].boxes] == [2]

    def test_lots_and_what_the_readme_says(
        self, run: Run, labelling: Labelling, tmp_path: Path
    ) -> None:
        """The names of the images begin with their lot, five images each."""
        for format in ("yolo", "yolo-classify"):
            out = tmp_path / format
            export_run(run, labelling, format, out, choices=Choices(by="folder"))
            guide = (out / "README.md").read_text("utf-8")
            held = len([one for one in out.rglob("*.png") if "val" in one.parts])
            assert held in (2, 5, 7)
            assert f"{12 - held} images for training, {held} for validation." in guide
            assert "Nothing is for validation of: dent; deep" in guide

    def test_what_people_are_unsure_about_is_left_out(
        self, run: Run, labelling: Labelling, tmp_path: Path
    ) -> None:
        groups = {**labelling.groups, 1: replace(labelling.groups[1], role="unsure")}
        written = export_run(run, replace(labelling, groups=groups), "yolo", tmp_path / "out")
        assert {entry.reason for entry in written.left_out} == {"is in an unsure group"}
        assert [entry.name for entry in written.left_out] == list(NAMES[5:9])
        samples, names = read_detect(tmp_path / "out")
        assert names == ["dent; deep"]
        assert len(samples) == len(NAMES) - 4
        # Image 0 has a region that is like the unsure group: that is no box either.
        assert [len(one.boxes) for one in samples if one.content == content_of(run, 0)] == [1]

    def test_nothing_to_detect(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        groups = {number: Group(number, "fine", "normal") for number in range(3)}
        with pytest.raises(InputError, match="No group has the role flaw"):
            export_run(run, replace(labelling, groups=groups), "yolo", tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_any_title_comes_back(self, tmp_path: Path) -> None:
        run, labelling = hostile(tmp_path / "parts")
        export_run(run, labelling, "yolo", tmp_path / "out")
        _, names = read_detect(tmp_path / "out")
        content = gather_content(run, labelling)
        assert names == [content.titles[group] for group in range(len(HOSTILE_TITLES))]

    def test_names_that_differ_in_their_suffix_alone(self, tmp_path: Path) -> None:
        names = ("a.png", "a.PNG", "A.jpg", "b/a.png", "b_a.tif", *NAMES[5:])
        run = make_run(tmp_path / "parts", names=names)
        export_run(run, named(run), "yolo", tmp_path / "out")
        samples, _ = read_detect(tmp_path / "out")
        assert len({(one.side, one.file.stem.lower()) for one in samples}) == len(names)

    def test_what_a_name_does_not_say_the_content_does(self, tmp_path: Path) -> None:
        run = make_run(tmp_path / "parts", names=("first", "second.dat", *NAMES[2:]))
        path = Path(run.table["path"][1])
        Image.fromarray(picture(1, (50, 40))).save(path, "GIF")
        run.table["sha256"][1] = hashlib.sha256(path.read_bytes()).hexdigest()
        written = export_run(run, named(run), "yolo", tmp_path / "out")
        assert [(entry.name, entry.reason) for entry in written.left_out] == [
            ("second.dat", "is in a format that YOLO does not read")
        ]
        samples, _ = read_detect(tmp_path / "out")
        assert "first.png" in {one.file.name for one in samples}


class TestClassify:
    def test_against_the_run(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        export_run(run, labelling, "yolo-classify", tmp_path / "out")
        found = read_classify(tmp_path / "out")
        assert list(found["train"]) == ["dent; deep", "normal", "streak"]
        for group, title in enumerate(["dent; deep", "streak", "normal"]):
            both = Counter(found["train"][title] + found["val"][title])
            rows = np.flatnonzero(labelling.labels == group)
            assert both == Counter(content_of(run, row) for row in rows)
            assert found["train"][title]
            assert found["val"][title]

    def test_a_single_image_is_for_training(self, tmp_path: Path) -> None:
        names = tuple(f"{number}.png" for number in range(12))
        run = make_run(tmp_path / "parts", names=names, regions=())
        groups = {number: Group(number, title) for number, title in enumerate("abcdefghi")}
        labels = np.minimum(np.arange(12), 8)
        labelling = replace(named(run), groups=groups, labels=labels)
        written = export_run(run, labelling, "yolo-classify", tmp_path / "out")
        assert written.left_out == []
        found = read_classify(tmp_path / "out")
        for number, title in enumerate("abcdefgh"):
            assert found["train"][title] == [content_of(run, number)]
            assert found["val"][title] == []
            placeholder = tmp_path / "out" / "val" / title / "no-images.txt"
            assert placeholder.read_text() == "Every image is on the other side.\n"
        assert found["train"]["i"]
        assert found["val"]["i"]
        assert len(list((tmp_path / "out").rglob("no-images.txt"))) == 8

    def test_it_needs_two_images(self, tmp_path: Path) -> None:
        run = make_run(tmp_path / "parts", names=("a.png", "b.png"), clusters=(0, 0), regions=())
        Path(run.table["path"][1]).write_bytes(content_of(run, 0))
        run.table["sha256"][1] = run.table["sha256"][0]
        for format in ("yolo", "yolo-classify"):
            told = r"needs at least two different images.* Got 2 of 2\."
            with pytest.raises(InputError, match=told):
                export_run(run, one_group(run), format, tmp_path / format)
            assert not (tmp_path / format).exists()


def one_group(run: Run) -> Labelling:
    n = len(run.table["name"])
    return Labelling({0: Group(0, "dent")}, np.zeros(n, np.int64), np.zeros(n, bool), 1, 1)


class TestSplit:
    def test_copies_are_on_one_side(self, tmp_path: Path) -> None:
        names = tuple(f"{number}.png" for number in range(24))
        run = make_run(tmp_path / "parts", names=names, clusters=(0,) * 12 + (1,) * 12, regions=())
        for row in range(0, 24, 3):  # the second is the same file, the third the same picture
            Path(run.table["path"][row + 1]).write_bytes(content_of(run, row))
            with Image.open(run.table["path"][row]) as image:
                image.save(run.table["path"][row + 2], compress_level=0)
            run.embeddings[row + 1 : row + 3] = run.embeddings[row]
        paths = [Path(path) for path in run.table["path"]]
        run.table["sha256"][:] = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]
        export_run(run, named(run), "yolo", tmp_path / "out")
        samples, _ = read_detect(tmp_path / "out")
        side_of = {int(one.file.stem): one.side for one in samples}
        for row in range(0, 24, 3):
            assert side_of[row] == side_of[row + 1] == side_of[row + 2]
        assert set(side_of.values()) == {"train", "val"}

    def test_a_fifth_is_held_out_whatever_the_order(self) -> None:
        keys = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(4000)]
        groups = [number % 5 for number in range(4000)]
        held_out = split(keys, groups)
        assert abs(len(held_out) / 4000 - VALIDATION_SHARE) < 0.03
        assert split(keys[::-1], groups[::-1]) == held_out
        # More images do not move those that are there.
        assert split(keys[:2000], groups[:2000]) == held_out & set(keys[:2000])

    @pytest.mark.parametrize("seed", range(20))
    def test_each_group_has_both_sides(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 40))
        keys = [hashlib.sha256(bytes([seed, number])).hexdigest() for number in range(n)]
        groups = rng.integers(0, 6, n).tolist()
        held_out = split(keys, groups)
        assert 0 < len(held_out) < n
        for group in set(groups):
            own = {key for key, one in zip(keys, groups, strict=True) if one == group}
            if len(own) > 1:
                assert 0 < len(own & held_out) < len(own)

    def test_images_that_are_alone_in_their_groups(self) -> None:
        keys = [hashlib.sha256(bytes([number])).hexdigest() for number in range(12)]
        assert split(keys, range(12)) == {min(keys)}  # something must be held out
        assert len(split(keys, [*range(11), 0])) == 1
