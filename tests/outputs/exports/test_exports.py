"""Exports: every format says what the run and its groups say, and survives any name."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import itertools
import json
import os
import re
from dataclasses import replace
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from flawsort import Run, View, open_run
from flawsort.cli.export import export_folder, show_export
from flawsort.core.errors import InputError, OptionError
from flawsort.core.tables import unguarded
from flawsort.core.text import clean
from flawsort.embeddings.regions import mask_cells
from flawsort.labels.groups import Group, Labelling, first_labelling
from flawsort.labels.session import Session
from flawsort.outputs.exports import (
    FORMATS,
    LINKS,
    Choices,
    Format,
    export_run,
)
from flawsort.outputs.exports.book import render_book
from flawsort.outputs.exports.content import UNKNOWN, Content, find_pictures, gather_content
from flawsort.outputs.exports.examples import choose
from flawsort.outputs.exports.label_studio import pack_mask
from flawsort.outputs.exports.masks import Cutout, lattice, run_lengths
from flawsort.outputs.exports.naming import (
    distinct_titles,
    flat_names,
    folder_names,
    safe_part,
    safe_paths,
)
from flawsort.outputs.exports.writing import MARKER
from flawsort.runs.folder import save_run
from helpers.export_runs import (
    GRID,
    HOSTILE_NAMES,
    HOSTILE_TITLES,
    INPUT,
    NAMES,
    REGIONS,
    SIZES,
    hostile,
    make_run,
    named,
)
from helpers.faults import no_space
from helpers.html import Page
from helpers.plates import ROOT, contents, fingerprint, run_code

WITH_IMAGES = tuple(format.name for format in FORMATS.values() if format.images)
WITHOUT_IMAGES = tuple(name for name in FORMATS if name not in WITH_IMAGES)
EVERY = tuple(name for name in FORMATS if name != "book-pdf")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "parts")


@pytest.fixture
def labelling(run: Run) -> Labelling:
    return named(run, "dent; deep", "streak")


def place(path: Path, format: str) -> Path:
    """Where an export goes: a folder, or a file with its suffix."""
    return path.with_name(path.name + FORMATS[format].suffix)


def expected_pixels(
    mask: str, size: tuple[int, int], view: View | None = None
) -> NDArray[np.bool_]:
    """(height, width): pixel by pixel, whether its middle is in one of the patches."""
    view = view or View()
    width, height = size
    left, top, right, bottom = view.roi or (0, 0, width, height)
    wide, high = right - left, bottom - top
    scale_x, scale_y = wide / INPUT[1], high / INPUT[0]
    if view.fit == "pad":
        scale_x = scale_y = max(scale_x, scale_y)
    if view.fit == "crop":
        scale_x = scale_y = min(scale_x, scale_y)
    cells = set(mask_cells([mask])[0].tolist())
    found = np.zeros((height, width), bool)
    for y, x in itertools.product(range(height), range(width)):
        if not (left <= x < right and top <= y < bottom):
            continue
        across = (x + 0.5 - (left + right) / 2) / (scale_x * INPUT[1]) + 0.5
        down = (y + 0.5 - (top + bottom) / 2) / (scale_y * INPUT[0]) + 0.5
        if 0 <= across < 1 and 0 <= down < 1:
            cell = int(down * GRID[0]) * GRID[1] + int(across * GRID[1])
            found[y, x] = cell in cells
    return found


def unrolled(counts: list[int]) -> NDArray[np.bool_]:
    return np.repeat(np.arange(len(counts)) % 2 == 1, counts)


def box_of(mask: NDArray[np.bool_]) -> list[int]:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return [
        int(columns[0]),
        int(rows[0]),
        int(np.ptp(columns)) + 1,
        int(np.ptp(rows)) + 1,
    ]


class TestNames:
    @pytest.mark.parametrize("name", [*HOSTILE_NAMES, *HOSTILE_TITLES, "", " ", ".", "...", "-rf"])
    def test_a_part_is_a_plain_file_name(self, name: str, tmp_path: Path) -> None:
        part = safe_part(name)
        assert 1 <= len(part.encode()) <= 170
        assert not set(part) & set('<>:"/\\|?*\x00\n\t\x1b')
        assert part[0] not in ".- "
        assert part[-1] not in ". "
        assert part.partition(".")[0].lower() not in ("con", "nul", "prn", "aux", "com1")
        (tmp_path / part).write_bytes(b"")
        assert [path.name for path in tmp_path.iterdir()] == [part]

    def test_plain_names_stay(self) -> None:
        plain = ["parts/lot 7/Ünïcode (1).png", "a_b.png", "🔩.jpg"]
        assert safe_paths(plain) == plain

    @pytest.mark.parametrize("name", ["nul", "AUX .png", "conin$", "lpt\u00b9.txt", "com0.a.b"])
    def test_no_file_is_a_device_of_windows(self, name: str) -> None:
        assert safe_part(name) == f"_{name}"

    def test_suffixes_survive(self) -> None:
        assert safe_part("x" * 300 + ".jpeg").endswith("x.jpeg")
        assert safe_part("é" * 300 + ".png").endswith("é.png")

    def test_paths_stay_inside_and_apart(self) -> None:
        paths = safe_paths(HOSTILE_NAMES)
        assert len({path.casefold() for path in paths}) == len(paths)
        for path in paths:
            assert not path.startswith("/")
            assert not {"", ".", ".."} & set(path.split("/"))

    def test_numbers_keep_apart_what_case_does_not(self) -> None:
        assert safe_paths(["a/X.png", "A/x.png", "a/x.png"]) == [
            "a/X.png", "A/x (2).png", "a/x (3).png",
        ]  # fmt: skip
        assert safe_paths(["x.png", "x (2).png", "x.png"]) == ["x.png", "x (2).png", "x (3).png"]
        assert safe_paths(["x.png", "x.png", "x (2).png"]) == ["x.png", "x (3).png", "x (2).png"]

    def test_a_file_is_no_folder(self) -> None:
        assert safe_paths(["x", "x/1.png"]) == ["x (2)", "x/1.png"]

    def test_many_equal_names_take_no_time(self) -> None:
        assert len(set(safe_paths(["same.png"] * 20_000))) == 20_000

    def test_flat(self) -> None:
        assert flat_names(["lot/7.png", "lot_7.png", "/lot/8.png"]) == [
            "lot_7.png", "lot_7 (2).png", "lot_8.png",
        ]  # fmt: skip

    def test_folders(self) -> None:
        found = folder_names(["v1.2", "V1.2", "images.csv", "../x"], reserved=["images.csv"])
        assert found == ["v1.2", "V1.2 (2)", "images.csv (2)", "__x"]

    def test_titles(self) -> None:
        assert distinct_titles(["cut", "cut", "Cut", "a\x00b\ud800", " "]) == [
            "cut", "cut (2)", "Cut", "a\ufffdb\ufffd", "?",
        ]  # fmt: skip
        short = distinct_titles(["x" * 70, "x" * 71, "x" * 64, "y"], longest=64)
        assert len(set(short)) == 4
        assert max(map(len, short)) == 64


class TestMasks:
    @pytest.mark.parametrize("seed", range(8))
    def test_run_lengths(self, seed: int) -> None:
        flat = np.random.default_rng(seed).random(40) < 0.5
        counts = run_lengths(flat)
        assert counts[0] == (0 if flat[0] else [*flat, True].index(True))
        assert all(count > 0 for count in counts[1:])
        assert np.array_equal(unrolled(counts), flat)

    @pytest.mark.parametrize(
        "view",
        [
            View(),
            View(roi=(4, 3, 18, 15)),
            View(fit="pad"),
            View(fit="crop"),
            View(fit="pad", roi=(1, 2, 19, 14)),
            View(fit="crop", roi=(0, 3, 20, 15), tiles=(1, 1)),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("size", [(40, 30), (20, 45), (21, 16)])
    @pytest.mark.parametrize("mask", ["6-8 11-13", "0-19", "0 3-4 19", "12"])
    def test_pixels_of_patches(self, view: View, size: tuple[int, int], mask: str) -> None:
        expected = expected_pixels(mask, size, view)
        found = lattice(GRID, view, INPUT, np.zeros(size[::-1], np.uint8), size)
        cutout = found.cut(mask_cells([mask])[0])
        if not expected.any():  # cropped away: still a place
            assert cutout.area == 1
            return
        assert np.array_equal(cutout.whole(), expected)
        assert list(cutout.box) == box_of(expected)
        assert cutout.area == expected.sum()

    @pytest.mark.parametrize("seed", range(6))
    def test_runs_of_the_whole_image(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        whole = np.zeros((9, 13), bool)
        whole[2:6, 0 if seed % 2 else 3 : 13 if seed % 3 else 9] = True
        whole &= rng.random(whole.shape) < 0.7
        whole[rng.integers(2, 6), 4] = True
        left, top, wide, high = box_of(whole)
        cutout = Cutout(left, top, whole[top : top + high, left : left + wide], (13, 9))
        assert np.array_equal(cutout.whole(), whole)
        assert np.array_equal(unrolled(cutout.row_runs()), whole.ravel())
        assert np.array_equal(unrolled(cutout.column_runs()), whole.T.ravel())
        assert all(count > 0 for count in cutout.row_runs()[1:] + cutout.column_runs()[1:])
        assert np.array_equal(unrolled(cutout.part_runs()).reshape(high, wide), cutout.mask)

    def test_patches_smaller_than_a_pixel_have_one(self) -> None:
        found = lattice(GRID, View(), INPUT, np.zeros((1, 2), np.uint8), (2, 1))
        cutouts = [found.cut(np.array([cell])) for cell in range(20)]
        assert all(cutout.area == 1 and cutout.whole().sum() == 1 for cutout in cutouts)

    def test_patches_do_not_overlap_and_leave_no_gap(self) -> None:
        found = lattice(GRID, View(), INPUT, np.zeros((31, 43), np.uint8), (43, 31))
        covered = sum(found.cut(np.array([cell])).whole().astype(int) for cell in range(20))
        assert np.all(covered == 1)


class TestContent:
    def test_which_regions_are_left(self, run: Run, labelling: Labelling) -> None:
        content = gather_content(run, labelling)
        found = {row: [one.group for one in some] for row, some in enumerate(content.regions)}
        assert {row: some for row, some in found.items() if some} == {
            0: [0, 1], 1: [0], 5: [1], 6: [UNKNOWN],
        }  # fmt: skip

    def test_a_person_who_looked_is_right(self, run: Run, labelling: Labelling) -> None:
        content = gather_content(run, replace(labelling, several={0: (1,), 3: (1, 2)}))
        assert content.kind_titles(0) == ["dent; deep", "streak"]
        assert content.kind_titles(3) == ["dent; deep", "streak", "normal"]

    def test_nothing_stands_out_in_normal_images(self, run: Run, labelling: Labelling) -> None:
        labels = labelling.labels.copy()
        labels[[1, 6]] = 2  # one like its own group, one like none
        content = gather_content(run, replace(labelling, labels=labels))
        assert content.regions[1] == content.regions[6] == ()

    def test_groups(self, run: Run, labelling: Labelling) -> None:
        groups = {**labelling.groups, 3: Group(3), 4: Group(4, "spare"), 5: Group(5, "streak")}
        content = gather_content(run, replace(labelling, groups=groups, next_id=6))
        assert [group.id for group in content.groups] == [0, 1, 2, 4, 5]
        assert content.titles[5] == "streak (2)"
        assert content.label_titles()[UNKNOWN] == "Unknown"

    def test_a_group_may_be_called_unknown(self, run: Run) -> None:
        content = gather_content(run, named(run, "Unknown"))
        assert content.titles[0] == "Unknown"
        assert content.titles[UNKNOWN] == "Unknown (2)"

    def test_turned_images_are_upright(self, run: Run, labelling: Labelling) -> None:
        path = Path(run.table["path"][0])
        turned = Image.fromarray(np.zeros((30, 40, 3), np.uint8))
        exif = turned.getexif()
        exif[0x0112] = 6
        turned.save(path, "PNG", exif=exif)
        run.table["sha256"][0] = hashlib.sha256(path.read_bytes()).hexdigest()
        content = gather_content(run, labelling)
        pictures, _ = find_pictures(content)
        assert pictures[0].size == (30, 40)
        expected = expected_pixels(REGIONS[0][3], (30, 40))
        assert np.array_equal(pictures[0].cut(pictures[0].regions[0]).whole(), expected)

    def test_a_view_with_a_mask(self, tmp_path: Path) -> None:
        inside = np.zeros((10, 10), np.uint8)
        inside[5:, :5] = 255
        Image.fromarray(inside).save(tmp_path / "mask.png")
        masked = make_run(tmp_path / "parts", view=View(mask=tmp_path / "mask.png"))
        (tmp_path / "mask.png").unlink()  # the run has its own
        content = gather_content(masked, named(masked))
        pictures, _ = find_pictures(content)
        cutout = pictures[0].cut(pictures[0].regions[0])
        whole = expected_pixels(REGIONS[0][3], (40, 30), View(roi=(0, 15, 20, 30)))
        assert np.array_equal(cutout.whole(), whole)


# A cell that is a number, whatever its sign.
NUMBERS = re.compile(r"[-+]?[\d.]+(e[-+]\d+)?")


class TestTables:
    def test_csv(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        paths = export_run(run, labelling, "csv", tmp_path / "out").paths
        assert [path.name for path in paths] == ["groups.csv", "images.csv", "regions.csv"]
        images = list(csv.DictReader(io.StringIO((tmp_path / "out/images.csv").read_text())))
        assert [row["name"] for row in images] == list(NAMES)
        first = images[0]
        assert list(first)[:7] == [
            "name", "path", "sha256", "group", "probability", "decided", "group_id",
        ]  # fmt: skip
        assert (first["group"], first["group_id"], first["role"]) == ("dent; deep", "0", "flaw")
        assert (first["kinds"], first["kind_groups"]) == ("dent, deep;streak", "0;1")
        assert (first["decided"], images[1]["decided"]) == ("true", "false")
        assert {row["probability"] for row in images} == {""}
        assert images[11]["group"] == "normal"
        assert images[11]["role"] == "normal"
        regions = list(csv.DictReader(io.StringIO((tmp_path / "out/regions.csv").read_text())))
        assert [row["group"] for row in regions] == [
            "dent; deep", "streak", "dent; deep", "streak", "", "normal",
        ]  # fmt: skip
        assert [row["mask"] for row in regions] == [region[3] for region in REGIONS]
        groups = list(csv.DictReader(io.StringIO((tmp_path / "out/groups.csv").read_text())))
        assert [(row["group"], row["images"], row["decided_images"]) for row in groups] == [
            ("dent; deep", "5", "1"), ("streak", "4", "1"), ("normal", "3", "0"),
        ]  # fmt: skip

    def test_parquet(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        from arro3.io import read_parquet

        export_run(run, labelling, "parquet", tmp_path / "out")
        export_run(run, labelling, "csv", tmp_path / "csv")
        for name in ("images", "regions", "groups"):
            stream = io.BytesIO((tmp_path / f"out/{name}.parquet").read_bytes())
            table = read_parquet(stream).read_all()
            text = (tmp_path / f"csv/{name}.csv").read_text()
            rows = list(csv.DictReader(io.StringIO(text)))
            assert table.column_names == list(rows[0])
            for column in table.column_names:
                values = [row[column] for row in rows]
                for value, written in zip(table.column(column).to_pylist(), values, strict=True):
                    if value is None:
                        assert (column, written) == ("probability", "")
                    elif isinstance(value, float):
                        assert written == f"{value:.6g}"
                    else:
                        assert str(value).lower() == written.lower()
        images = read_parquet(io.BytesIO((tmp_path / "out/images.parquet").read_bytes())).read_all()
        assert images.column("decided").to_pylist()[:2] == [True, False]

    @pytest.mark.parametrize("format", ["csv", "folders"])
    def test_no_spreadsheet_runs_a_cell(self, tmp_path: Path, format: str) -> None:
        signs = ["=", "+", "-", "@", "\t", "\r"]
        names = [f"{sign}cmd|' /C calc'!A0 {row}.png" for row, sign in enumerate(signs)]
        run = make_run(tmp_path / "parts", names=names, clusters=range(6), regions=())
        labelling = named(run, "=1+1", "+1+1", "-1+1", "@SUM(1)", "a;=1", "'=1")
        for path in export_run(run, labelling, format, tmp_path / "out").paths:
            if path.suffix != ".csv":
                continue
            for row in csv.DictReader(io.StringIO(path.read_text(), newline="")):
                for column, cell in row.items():
                    assert NUMBERS.fullmatch(cell) or not cell.startswith(tuple(signs)), column
        written = list(csv.DictReader((tmp_path / "out/images.csv").read_text().splitlines()))
        assert [unguarded(row["name"]) for row in written] == [clean(name) for name in names]
        titles = [group.name for group in labelling.groups.values()]
        assert [unguarded(row["group"]) for row in written] == titles
        # The tables of the run itself.
        text = run.files()["images.csv"].decode()
        assert [
            unguarded(row["name"]) for row in csv.DictReader(io.StringIO(text, newline=""))
        ] == names

    def test_no_file_is_needed(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        run.table["path"][0] = str(tmp_path / "gone.png")
        assert export_run(run, labelling, "csv", tmp_path / "out").left_out == []


class TestFolders:
    def test_where_images_are(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        export_run(run, labelling, "folders", tmp_path / "out")
        found = {path: data for path, data in contents(tmp_path / "out").items() if ".png" in path}
        titles = ("dent; deep", "streak", "normal")
        for row, (name, cluster) in enumerate(zip(NAMES, run.table["cluster"], strict=True)):
            file = f"{titles[cluster]}/{name.replace('/', '_')}"
            assert found.pop(file) == Path(run.table["path"][row]).read_bytes()
        assert not found
        listed = list(csv.DictReader(io.StringIO((tmp_path / "out/images.csv").read_text())))
        assert listed[0] == {
            "file": "dent; deep/lot 0_part-00.png", "name": NAMES[0], "group": "dent; deep",
            "probability": "", "decided": "true", "role": "flaw", "severity": "", "note": "",
            "kinds": "dent, deep;streak",
        }  # fmt: skip

    @pytest.mark.parametrize("link", LINKS)
    def test_links(self, run: Run, labelling: Labelling, tmp_path: Path, link: str) -> None:
        export_run(run, labelling, "folders", tmp_path / "out", choices=Choices(link=link))
        file = tmp_path / "out" / "streak" / "lot 1_part-05.png"
        source = Path(run.table["path"][5])
        assert file.read_bytes() == source.read_bytes()
        assert file.is_symlink() == (link == "link")
        assert (file.stat().st_ino == source.stat().st_ino) == (link != "copy")
        if link == "copy":
            assert file.stat().st_mtime == source.stat().st_mtime

    def test_a_relative_source_is_linked_from_anywhere(
        self, run: Run, labelling: Labelling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        run.table["path"][5] = "parts/5.png"
        export_run(run, labelling, "folders", Path("out"), choices=Choices(link="link"))
        assert os.readlink(tmp_path / "out/streak/lot 1_part-05.png") == f"{tmp_path}/parts/5.png"

    def test_links_that_cannot_be_made(
        self, run: Run, labelling: Labelling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(os, "link", refuse)
        with pytest.raises(
            OptionError, match=r"cannot be hard-linked: Invalid cross-device link. Copy images"
        ):
            export_run(
                run, labelling, "folders", tmp_path / "out", choices=Choices(link="hardlink")
            )
        assert sorted(path.name for path in tmp_path.iterdir()) == ["parts"]


class TestCoco:
    def test_against_the_run(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        export_run(run, labelling, "coco", tmp_path / "out")
        found = json.loads((tmp_path / "out/annotations/instances_default.json").read_text())
        assert [(one["id"], one["name"], one["supercategory"]) for one in found["categories"]] == [
            (1, "dent; deep", "flaw"), (2, "streak", "flaw"), (3, "normal", "normal"),
            (4, "Unknown", ""),
        ]  # fmt: skip
        for row, image in enumerate(found["images"]):
            assert image["id"] == row + 1
            assert (image["width"], image["height"]) == SIZES[row % len(SIZES)]
            copied = tmp_path / "out/images/default" / image["file_name"]
            assert copied.read_bytes() == Path(run.table["path"][row]).read_bytes()
        assert found["images"][0]["flawsort_kinds"] == ["dent; deep", "streak"]
        assert found["images"][0]["flawsort_group"] == "dent; deep"
        assert found["images"][5]["flawsort_decided"] is True
        assert [
            (one["id"], one["image_id"], one["category_id"]) for one in found["annotations"]
        ] == [(1, 1, 1), (2, 1, 2), (3, 2, 1), (4, 6, 2), (5, 7, 4)]
        for one in found["annotations"]:
            image, _, _, mask = REGIONS[one["id"] - 1]
            expected = expected_pixels(mask, SIZES[image % len(SIZES)])
            assert one["segmentation"]["size"] == list(expected.shape)
            assert np.array_equal(unrolled(one["segmentation"]["counts"]), expected.T.ravel())
            assert one["bbox"] == box_of(expected)
            assert one["area"] == expected.sum()
            assert one["iscrowd"] == 0


class TestCvat:
    def test_against_the_run(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        export_run(run, labelling, "cvat", tmp_path / "out")
        root = ElementTree.parse(tmp_path / "out/annotations.xml").getroot()
        assert root.findtext("version") == "1.1"
        labels = [label.findtext("name") for label in root.iterfind("meta/task/labels/label")]
        assert labels == ["dent; deep", "streak", "normal", "Unknown"]
        raw = json.loads((tmp_path / "out/labels.json").read_text())
        assert [label["name"] for label in raw] == labels
        images = root.findall("image")
        assert [image.get("name") for image in images] == list(NAMES)
        assert [image.get("id") for image in images] == [str(n) for n in range(len(NAMES))]
        assert [tag.get("label") for tag in images[0].findall("tag")] == ["dent; deep", "streak"]
        assert images[0].find("tag").get("source") == "manual"  # type: ignore[union-attr]
        assert images[1].find("tag").get("source") == "auto"  # type: ignore[union-attr]
        assert root.findtext("meta/task/size") == str(len(NAMES))
        n_regions = 0
        for number, image in enumerate(images):
            size = SIZES[number % len(SIZES)]
            assert (image.get("width"), image.get("height")) == (str(size[0]), str(size[1]))
            own = [region for region in REGIONS if region[0] == number and number < 9]
            boxes, masks = image.findall("box"), image.findall("mask")
            for region, box, mask in zip(own, boxes, masks, strict=True):
                expected = expected_pixels(region[3], size)
                left, top, wide, high = box_of(expected)
                edges = [float(box.get(side, "")) for side in ("xtl", "ytl", "xbr", "ybr")]
                assert edges == [left, top, left + wide, top + high]
                part = [int(mask.get(side, "")) for side in ("left", "top", "width", "height")]
                assert part == [left, top, wide, high]
                counts = [int(count) for count in mask.get("rle", "").split(",")]
                inside = expected[top : top + high, left : left + wide]
                assert np.array_equal(unrolled(counts), inside.ravel())
                assert box.get("label") == mask.get("label")
                assert box.get("group_id") == mask.get("group_id")
                n_regions += 1
        assert n_regions == 5

    def test_labels_are_as_short_as_cvat_has_them(self, tmp_path: Path) -> None:
        export_run(*hostile(tmp_path / "parts"), "cvat", tmp_path / "out")
        root = ElementTree.parse(tmp_path / "out/annotations.xml").getroot()
        labels = [str(one.findtext("name")) for one in root.iterfind("meta/task/labels/label")]
        assert max(map(len, labels)) <= 64
        assert len(set(labels)) == len(HOSTILE_TITLES)
        assert {tag.get("label") for tag in root.iter("tag")} == set(labels)


def decode_brush(packed: list[int]) -> NDArray[np.uint8]:
    """Label Studio's run lengths, bit by bit."""
    bits = "".join(f"{byte:08b}" for byte in packed)
    at = 0

    def read(width: int) -> int:
        nonlocal at
        at += width
        return int(bits[at - width : at], 2)

    total, width, sizes = read(32), read(5) + 1, [read(4) + 1 for _ in range(4)]
    values: list[int] = []
    while len(values) < total:
        same = read(1)
        length = read(sizes[read(2)]) + 1
        values += [read(width)] * length if same else [read(width) for _ in range(length)]
    assert len(values) == total
    assert set(bits[at:]) <= {"0"}
    assert len(bits) - at < 8
    return np.array(values, np.uint8)


class TestLabelStudio:
    def test_against_the_run(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        export_run(run, labelling, "label-studio", tmp_path / "out")
        tasks = json.loads((tmp_path / "out/tasks.json").read_text())
        assert [task["data"]["name"] for task in tasks] == list(NAMES)
        for row, task in enumerate(tasks):
            address = urlparse(task["data"]["image"])
            assert address.path == "/data/local-files/"
            (file,) = parse_qs(address.query)["d"]
            source = Path(run.table["path"][row])
            assert (tmp_path / "out" / file).read_bytes() == source.read_bytes()
        results = tasks[0]["predictions"][0]["result"]
        kinds = [one["value"]["choices"] for one in results if one["type"] == "choices"]
        assert kinds == [["dent; deep", "streak"]]
        boxes = [one for one in results if one["type"] == "rectanglelabels"]
        masks = [one for one in results if one["type"] == "brushlabels"]
        for region, box, mask in zip(REGIONS[:2], boxes, masks, strict=True):
            expected = expected_pixels(region[3], (40, 30))
            left, top, wide, high = box_of(expected)
            sides = [box["value"][side] for side in ("x", "y", "width", "height")]
            shares = [100 * left / 40, 100 * top / 30, 100 * wide / 40, 100 * high / 30]
            assert sides == pytest.approx(shares, abs=1e-6)
            label = ("dent; deep", "streak")[region[2]]
            assert box["value"]["rectanglelabels"] == mask["value"]["brushlabels"] == [label]
            assert (mask["original_width"], mask["original_height"]) == (40, 30)
            channels = decode_brush(mask["value"]["rle"]).reshape(30, 40, 4)
            assert np.array_equal(channels, np.where(expected, 255, 0)[..., None].repeat(4, 2))

    def test_addresses_lead_to_any_name(self, tmp_path: Path) -> None:
        names = [f"{odd} {n}/100% #{n}+a&d=x;y ü.png" for n, odd in enumerate("abcdefghijkl")]
        run = make_run(tmp_path / "parts", names=names, regions=())
        export_run(run, named(run), "label-studio", tmp_path / "out")
        tasks = json.loads((tmp_path / "out/tasks.json").read_text("utf-8"))
        for task, name in zip(tasks, names, strict=True):
            assert task["data"]["image"].isascii()
            address = urlparse(task["data"]["image"])
            assert parse_qs(address.query)["d"] == [f"images/{name}"]
            assert (tmp_path / "out/images" / name).is_file()

    def test_long_runs(self) -> None:
        mask = np.zeros((250, 310), bool)
        mask[20:240, 3:300] = True
        mask[100] = False
        whole = np.zeros((300, 320), bool)
        whole[30:280, 5:315] = mask
        packed = pack_mask(Cutout(5, 30, mask, (320, 300)))
        assert np.array_equal(decode_brush(packed).reshape(300, 320, 4)[..., 2] > 0, whole)

    def test_configuration(self, run: Run, tmp_path: Path) -> None:
        export_run(run, named(run, "a <b> & $image"), "label-studio", tmp_path / "out")
        view = ElementTree.fromstring((tmp_path / "out/config.xml").read_text())
        labels = {
            tag: [one.get("value") for one in view.findall(f"{tag}/*")]
            for tag in ("Choices", "RectangleLabels", "BrushLabels")
        }
        groups = ["a <b> & \uff04image", "Group 1", "normal"]
        assert labels["Choices"] == groups
        assert labels["RectangleLabels"] == labels["BrushLabels"] == [*groups, "Unknown"]
        tasks = json.loads((tmp_path / "out/tasks.json").read_text())
        used = {one["from_name"] for one in tasks[0]["predictions"][0]["result"]}
        assert used == {str(tag.get("name")) for tag in view} - {"image"}
        assert "LOCAL_FILES_DOCUMENT_ROOT" in (tmp_path / "out/README.md").read_text()


class TestImageFolder:
    def read(self, folder: Path) -> list[dict[str, Any]]:
        lines = (folder / "train/metadata.jsonl").read_text("utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def test_against_the_run(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        export_run(run, labelling, "imagefolder", tmp_path / "out")
        rows = self.read(tmp_path / "out")
        for row, entry in enumerate(rows):
            assert entry["name"] == NAMES[row]
            copied = tmp_path / "out/train" / entry["file_name"]
            assert copied.read_bytes() == Path(run.table["path"][row]).read_bytes()
        assert rows[0]["label"] == "dent; deep"
        assert rows[0]["kinds"] == ["dent; deep", "streak"]
        expected = expected_pixels(REGIONS[1][3], (40, 30))
        assert rows[0]["objects"]["category"] == ["dent; deep", "streak"]
        assert rows[0]["objects"]["bbox"][1] == box_of(expected)
        counts = rows[0]["objects"]["segmentation"][1]["counts"]
        assert np.array_equal(unrolled(counts), expected.T.ravel())
        assert rows[3]["objects"] == {"bbox": [], "category": [], "segmentation": []}

    def test_without_any_region(self, tmp_path: Path) -> None:
        run = make_run(tmp_path / "parts", regions=())
        export_run(run, named(run), "imagefolder", tmp_path / "out")
        assert all("objects" not in entry for entry in self.read(tmp_path / "out"))


class TestBook:
    def chosen(self, content: Content, group: int) -> list[list[int]]:
        """By loops: typical, borderline, counter."""
        values, labels = content.run.embeddings, content.labelling.labels
        middles = {int(g): values[labels == g].mean(axis=0) for g in set(labels.tolist())}

        def far(row: int, other: int) -> float:
            return float(np.linalg.norm(values[row] - middles[other]))

        def margin(row: int) -> float:
            others = [far(row, other) for other in middles if other != group]
            return 1 - far(row, group) / min(others)

        own = [row for row in range(len(labels)) if labels[row] == group]
        typical = sorted(own, key=lambda row: far(row, group))[:6]
        rest = sorted((row for row in own if row not in typical), key=margin)
        unclear = [row for row in rest if margin(row) < 0.1][:6]
        next_one = min(
            (other for other in middles if other != group),
            key=lambda other: float(np.linalg.norm(middles[other] - middles[group])),
        )
        others = [row for row in range(len(labels)) if labels[row] == next_one]
        counter = [row for row in others if group not in content.kinds[row]]
        return [typical, unclear, sorted(counter, key=lambda row: far(row, group))[:6]]

    @pytest.mark.parametrize("spread", [0.1, 3.0])
    def test_which_images_are_shown(self, tmp_path: Path, spread: float) -> None:
        clusters = (0,) * 14 + (1,) * 12 + (2,) * 10
        names = [f"{number:02d}.png" for number in range(len(clusters))]
        run = make_run(tmp_path / "parts", names=names, clusters=clusters)
        noise = np.random.default_rng(1).normal(0, spread, (len(clusters), 3))
        run = replace(run, embeddings=4 * np.eye(3)[np.array(clusters)] + noise)
        content = gather_content(run, named(run))
        found = choose(content)
        for group in range(3):
            one = found[group]
            shown = [list(one.typical), list(one.borderline), list(one.counter)]
            assert shown == self.chosen(content, group)
            assert spread < 1 or len(one.borderline) > 1

    def test_copies_are_shown_once(self, run: Run) -> None:
        run.table["sha256"][:4] = ["same"] * 4
        content = gather_content(run, named(run))
        assert len(choose(content)[0].typical) == 2

    def test_an_image_with_this_kind_is_no_counter_example(self, run: Run) -> None:
        labelling = named(run)
        content = gather_content(run, labelling)
        nearest, before = choose(content)[0].nearest, choose(content)[0].counter
        assert nearest is not None
        content = gather_content(run, replace(labelling, several={before[0]: (0,)}))
        assert choose(content)[0].counter == before[1:]

    def test_says_what_there_is(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        groups = {**labelling.groups, 3: Group(3, "spare")}
        (path,) = export_run(
            run, replace(labelling, groups=groups), "book", tmp_path / "book.html"
        ).paths
        page = Page(path.read_text("utf-8"))
        text = page.words()
        assert "12 images in 3 groups: 2 kinds of flaw, 1 group without a flaw." in text
        assert "dent; deep kind of flaw 5 images · 42%" in text
        assert "1 image decided by a person" in text
        assert "Named groups without images: spare." in text
        assert "no flaw 3 images · 25%" in text
        pictures = [value for name, value in page.attributes if name == "src"]
        assert all(str(value).startswith("data:image/jpeg;base64,") for value in pictures)
        n_shown = sum(
            len(one.typical) + len(one.borderline) + len(one.counter)
            for one in self.choice(run, labelling)
        )
        assert len(pictures) == 2 * n_shown + 3
        ids = {value for name, value in page.attributes if name == "id"}
        links = {str(value) for name, value in page.attributes if name == "href"}
        assert links == {"#g0", "#g1", "#g2"}
        assert {link[1:] for link in links} <= ids

    def test_flaws_come_first_and_the_largest_of_them(self, run: Run) -> None:
        roles = {0: "normal", 1: "flaw", 2: "unsure", 3: "flaw"}
        labels = np.array([0] * 5 + [1] * 2 + [2] * 2 + [3] * 3)
        groups = {i: Group(i, f"group {i}", role) for i, role in roles.items()}  # type: ignore[arg-type]
        content = gather_content(run, replace(named(run), groups=groups, labels=labels))
        text = render_book(content)
        assert re.findall(r'<section class="chapter" id="g(\d)"', text) == ["3", "1", "2", "0"]

    def choice(self, run: Run, labelling: Labelling) -> list[Any]:
        content = gather_content(run, labelling)
        return list(choose(content).values())

    def test_fetches_and_runs_nothing(self, tmp_path: Path) -> None:
        content = gather_content(*hostile(tmp_path / "parts"))
        text = render_book(content)
        page = Page(text)
        assert not {"script", "link", "iframe", "object", "form"} & set(page.names)
        assert not [name for name, _ in page.attributes if name.startswith("on")]
        assert "http" not in text.replace("http-equiv", "")
        assert "url(" not in text
        policy = dict(page.attributes)["content"]
        assert policy is not None
        for title in HOSTILE_TITLES[:4]:
            assert title in page.text
        assert "\x00" not in text

    def test_regions_are_framed_in_the_colour_of_their_group(
        self, run: Run, labelling: Labelling
    ) -> None:
        content = gather_content(run, labelling)
        text = render_book(content)
        frames = re.findall(r'class="region" style="([^"]*)" title="Stands out: ([^"]*)"', text)
        assert {title for _, title in frames} == {"dent; deep", "streak"}
        first = "left:20.00%;top:25.00%;width:60.00%;height:50.00%;--group:#0072b2"
        assert (first, "dent; deep") in frames

    def test_heat_is_on_the_second_picture(self, run: Run, labelling: Labelling) -> None:
        cold = replace(run, scores=np.zeros_like(run.scores))
        texts = []
        for one in (run, cold):
            content = gather_content(one, labelling)
            texts.append(re.findall(r'src="([^"]*)"', render_book(content)))
        same = [a == b for a, b in zip(*texts, strict=True)]
        assert same[:3] == [True] * 3  # in the contents
        assert set(same[3::2]) == {True}
        assert set(same[4::2]) == {False}

    def test_what_is_padding_is_cold(self, run: Run, labelling: Labelling) -> None:
        hot = replace(run, scores=np.ones_like(run.scores), valid=np.zeros(run.scores.shape, bool))
        cold = replace(run, scores=np.zeros_like(run.scores))
        one = gather_content(hot, labelling)
        other = gather_content(cold, labelling)
        assert render_book(one) == render_book(other)

    def test_a_missing_thumbnail_is_made(self, run: Run, labelling: Labelling) -> None:
        bare = replace(run, thumbnails=(b"",) * len(run.thumbnails))
        content = gather_content(bare, labelling)
        everything = render_book(content).count("<figure>")
        for path in bare.table["path"][:3]:
            Path(path).unlink()
        content = gather_content(bare, labelling)
        text = render_book(content)
        content = gather_content(run, labelling)
        assert render_book(content).count("<figure>") == everything
        assert 0 < text.count("<figure>") < everything
        assert f'alt="{NAMES[0]}"' not in text

    @pytest.mark.parametrize(("aspect", "expected"), [(0.25, 0.5), (4.0, 3.0), (1.6, 1.6)])
    def test_pictures_have_the_usual_shape(
        self, run: Run, labelling: Labelling, aspect: float, expected: float
    ) -> None:
        stream = io.BytesIO()
        Image.new("RGB", (round(40 * aspect), 40)).save(stream, "JPEG")
        alike = replace(run, thumbnails=(stream.getvalue(),) * len(run.thumbnails))
        content = gather_content(alike, labelling)
        text = render_book(content)
        assert f"--aspect: {expected}; " in text
        sizes = re.findall(r'class="picture" style="width:([0-9.]+)%;height:([0-9.]+)%"', text)
        wide, high = map(float, sizes[-1])
        assert wide / high == pytest.approx(aspect / expected, rel=0.01)
        assert max(wide, high) == 100
        assert float(sizes[0][0]) / float(sizes[0][1]) == pytest.approx(aspect, rel=0.01)

    def test_one_group(self, tmp_path: Path) -> None:
        run = make_run(tmp_path / "parts", clusters=(0,) * len(NAMES), regions=())
        content = gather_content(run, named(run, "all"))
        text = render_book(content)
        assert "None: there is no other group." in text
        assert "None: every image lies clearly within the group." in text


class TestOutput:
    @pytest.mark.parametrize("format", EVERY)
    def test_the_same_bytes_each_time(
        self, run: Run, labelling: Labelling, tmp_path: Path, format: str
    ) -> None:
        before = fingerprint(run)
        for name in ("one", "two"):
            export_run(run, labelling, format, place(tmp_path / name / "out", format))
        assert contents(tmp_path / "one") == contents(tmp_path / "two")
        assert fingerprint(run) == before

    @pytest.mark.parametrize("format", EVERY)
    def test_paths_are_what_was_written(
        self, run: Run, labelling: Labelling, tmp_path: Path, format: str
    ) -> None:
        output = place(tmp_path / "out", format)
        paths = export_run(run, labelling, format, output).paths
        found = {path for path in output.rglob("*") if path.is_file() and path.name != MARKER}
        assert set(paths) == (found or {output})
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["parts", output.name])

    @pytest.mark.parametrize("format", EVERY)
    def test_hostile_names(self, tmp_path: Path, format: str) -> None:
        run, labelling = hostile(tmp_path / "parts")
        output = place(tmp_path / "out", format)
        written = export_run(run, labelling, format, output)
        assert written.left_out == []
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["parts", output.name])
        sources = {Path(path).read_bytes() for path in run.table["path"]}
        if format in WITH_IMAGES:
            copies = [data for data in contents(output).values() if data[:4] == b"\x89PNG"]
            assert len(copies) == len(HOSTILE_NAMES)
            assert set(copies) == sources
        for path in written.paths:
            assert not set(path.name) & set('<>:"\\|?*\x00\n')
            if path.suffix in (".json", ".jsonl", ".csv", ".xml", ".html", ".md"):
                text = path.read_bytes().decode()  # plain UTF-8
                assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", text)

    @pytest.mark.parametrize("format", EVERY)
    def test_nothing_is_overwritten_unasked(
        self, run: Run, labelling: Labelling, tmp_path: Path, format: str
    ) -> None:
        output = place(tmp_path / "out", format)
        export_run(run, labelling, format, output)
        before = contents(tmp_path)
        with pytest.raises(OptionError, match=r"^overwrite is needed to replace .*out.* already"):
            export_run(run, labelling, format, output)
        assert contents(tmp_path) == before
        export_run(run, named(run, "other"), format, output, choices=Choices(overwrite=True))
        after = contents(tmp_path)
        assert after != before
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["parts", output.name])
        shown = b"other" in b"".join([*after.values(), *(path.encode() for path in after)])
        assert shown or format == "parquet"

    def test_only_exports_are_replaced(
        self, run: Run, labelling: Labelling, tmp_path: Path
    ) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out/thesis.txt").write_text("years of work")
        with pytest.raises(OptionError, match="holds files that are not a flawsort export"):
            export_run(run, labelling, "csv", tmp_path / "out", choices=Choices(overwrite=True))
        with pytest.raises(OptionError, match=r"thesis.txt' is a file. Name a folder"):
            export_run(
                run, labelling, "csv", tmp_path / "out/thesis.txt", choices=Choices(overwrite=True)
            )
        assert (tmp_path / "out/thesis.txt").read_text() == "years of work"
        (tmp_path / "out/thesis.txt").unlink()
        assert export_run(run, labelling, "csv", tmp_path / "out")  # an empty one is fine

    def test_the_images_themselves_are_not_replaced(
        self, run: Run, labelling: Labelling, tmp_path: Path
    ) -> None:
        (tmp_path / "parts" / MARKER).write_text("{}")
        with pytest.raises(InputError, match=r"holds 12 of the images of this run, such as"):
            export_run(
                run, labelling, "folders", tmp_path / "parts", choices=Choices(overwrite=True)
            )

    @pytest.mark.parametrize("error", [KeyboardInterrupt, no_space()])
    @pytest.mark.parametrize(
        ("format", "step"),
        [("coco", "coco.place_images"), ("cvat", "writing.os.link"), ("book", "book.write_text")],
    )
    def test_an_interrupted_export_leaves_what_was_there(
        self,
        run: Run,
        labelling: Labelling,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        error: Any,
        format: str,
        step: str,
    ) -> None:
        output = place(tmp_path / "out", format)
        export_run(run, labelling, format, output)
        before = contents(tmp_path)

        def fail(path: Any, *_: object, **__: object) -> None:
            if isinstance(path, Path) and format == "book":
                path.write_bytes(b"half a b")
            raise error

        monkeypatch.setattr(f"flawsort.outputs.exports.{step}", fail)
        link = "copy" if format in WITHOUT_IMAGES else "hardlink"
        with pytest.raises((KeyboardInterrupt, OptionError)) as seen:
            export_run(run, named(run), format, output, choices=Choices(link=link, overwrite=True))
        if seen.type is OptionError:
            assert "No space left on device" in str(seen.value)
        assert contents(tmp_path) == before

    def test_files_have_their_suffix(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        place = re.escape(str(tmp_path))
        told = rf"must be a .html file. Got '{place}/out'. Name it '{place}/out.html'"
        with pytest.raises(OptionError, match=told):
            export_run(run, labelling, "book", tmp_path / "out")
        (tmp_path / "folder.html").mkdir()
        with pytest.raises(OptionError, match=r"folder.html' is a folder. Name a .html file"):
            export_run(
                run, labelling, "book", tmp_path / "folder.html", choices=Choices(overwrite=True)
            )

    @pytest.mark.parametrize(
        ("format", "name"), [("csv", "a.csv"), ("parquet", "b.c.PARQUET"), ("coco", "labels.json")]
    )
    def test_folders_have_no_suffix_of_files(
        self, run: Run, labelling: Labelling, tmp_path: Path, format: str, name: str
    ) -> None:
        place = re.escape(str(tmp_path / name[: name.rindex(".")]))
        told = f"^{format} writes a folder with several files. Got .* Name a folder: '{place}'.$"
        with pytest.raises(OptionError, match=told):
            export_run(run, labelling, format, tmp_path / name)
        assert not (tmp_path / name).exists()
        (tmp_path / name).mkdir()  # whoever made it themselves means it
        export_run(run, labelling, format, tmp_path / name)
        export_run(run, labelling, format, tmp_path / "lot 1.2")
        assert (tmp_path / "lot 1.2").is_dir()

    def test_unknown_choices(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match=r"format must be one of csv, .*\. Got 'voc'"):
            export_run(run, labelling, "voc", tmp_path / "out")
        with pytest.raises(OptionError, match=r"link must be one of copy, link, hardlink\. Got"):
            export_run(run, labelling, "csv", tmp_path / "out", choices=Choices(link="move"))

    def test_a_place_that_cannot_be(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(OptionError, match=r"Cannot write .*Choose another place\.$"):
            export_run(run, labelling, "csv", tmp_path / "file" / "out")

    @pytest.mark.parametrize("format", WITH_IMAGES)
    def test_what_is_gone_is_said(
        self, run: Run, labelling: Labelling, tmp_path: Path, format: str
    ) -> None:
        Path(run.table["path"][0]).unlink()
        Path(run.table["path"][1]).write_bytes(b"another picture")
        run.table["path"][2] = ""
        written = export_run(run, labelling, format, tmp_path / "out")
        assert [(entry.name, entry.reason) for entry in written.left_out] == [
            (NAMES[0], "does not exist"),
            (NAMES[1], "has changed since it was clustered"),
            (NAMES[2], "was given as an array and has no file"),
        ]
        listed = (tmp_path / "out/left-out.txt").read_text().splitlines()
        assert listed[0] == f"{NAMES[0]}\tdoes not exist"
        copies = [data for data in contents(tmp_path / "out").values() if data[:4] == b"\x89PNG"]
        assert len(copies) == len(NAMES) - 3

    def test_all_gone(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        run.table["path"][:] = [""] * len(NAMES)
        with pytest.raises(InputError, match=r"None of the 12 images can be read: lot 0"):
            export_run(run, labelling, "coco", tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_files_behind_a_url_are_fetched(
        self, run: Run, labelling: Labelling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        content = Path(run.table["path"][0]).read_bytes()
        run.table["path"][0] = "store://parts/0.png"
        monkeypatch.setattr("flawsort.core.remote.read_bytes", lambda _: content)
        monkeypatch.setattr("flawsort.core.remote.open_ranges", lambda _: io.BytesIO(content))
        asked = dataclasses.replace(run, fetch=("store://parts",))
        export_run(asked, labelling, "folders", tmp_path / "out", choices=Choices(link="link"))
        copied = tmp_path / "out/dent; deep/lot 0_part-00.png"
        assert not copied.is_symlink()
        assert copied.read_bytes() == content


class TestChoices:
    """Regions that show no group, and lots."""

    def categories(self, folder: Path) -> tuple[list[str], int]:
        found = json.loads((folder / "annotations/instances_default.json").read_text("utf-8"))
        return [one["name"] for one in found["categories"]], len(found["annotations"])

    def test_unknown_regions_of_coco(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        names = ["dent; deep", "streak", "normal"]
        for unknown, expected in ((None, 5), ("mark", 5), ("leave-out", 4)):
            out = tmp_path / str(unknown)
            export_run(run, labelling, "coco", out, choices=Choices(unknown=unknown))
            more = ["Unknown"] if expected == 5 else []
            assert self.categories(out) == ([*names, *more], expected)

    def test_regions_that_are_given(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        """The kinds of an image are those of its regions."""
        given = np.array([1, 2, 0, 1, UNKNOWN, 2])
        export_run(run, labelling, "csv", tmp_path / "out", regions=given)
        read = (tmp_path / "out/regions.csv").read_text("utf-8").splitlines()
        assert [row["group_id"] for row in csv.DictReader(read)] == [str(one) for one in given]
        images = list(csv.DictReader((tmp_path / "out/images.csv").read_text("utf-8").splitlines()))
        assert [row["kind_groups"] for row in images[:2]] == ["0;1", "0"]
        content = gather_content(run, labelling, regions=given)
        assert [one.group for one in content.regions[0]] == [1]  # the other one is normal

    @pytest.mark.parametrize(
        "format", [one.name for one in FORMATS.values() if not one.unknown], ids=str
    )
    def test_formats_without_boxes(
        self, run: Run, labelling: Labelling, tmp_path: Path, format: str
    ) -> None:
        told = f"unknown is for formats with boxes, and {format} has none. Got 'mark'."
        with pytest.raises(OptionError, match=re.escape(told)):
            export_run(run, labelling, format, tmp_path / "o", choices=Choices(unknown="mark"))

    def test_formats_without_a_split(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        told = r"split for validation \(yolo, yolo-classify\). Got 'day' with coco."
        with pytest.raises(OptionError, match=told):
            export_run(run, labelling, "coco", tmp_path / "out", choices=Choices(by="day"))

    @pytest.mark.parametrize(
        ("choices", "told"),
        [
            (Choices(unknown="hide"), "unknown must be one of mark, leave-out. Got 'hide'."),
            (Choices(by="lot"), "by must be day, week, month, folder or a CSV file that exists."),
        ],
    )
    def test_what_is_refused(
        self, run: Run, labelling: Labelling, tmp_path: Path, choices: Choices, told: str
    ) -> None:
        with pytest.raises(OptionError, match=re.escape(told)):
            export_run(run, labelling, "yolo", tmp_path / "out", choices=choices)
        assert not (tmp_path / "out").exists()


class TestCommand:
    def test_with_the_edits_of_the_run(
        self, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        save_run(run, tmp_path / "run")
        Path(run.table["path"][3]).unlink()
        result = export_folder(tmp_path / "run", "folders", tmp_path / "out", Choices())
        assert json.loads(json.dumps(result)) == result
        assert (result["n_images"], result["n_groups"], result["decided"]) == (11, 3, 0)
        assert result["notes"] == [f"{NAMES[3]}: does not exist"]
        assert len(result["files"]) == 11 + 2
        show_export(result)
        said = capsys.readouterr().out
        assert f"11 images in 3 groups of {tmp_path / 'run'}, 0 decided by a person." in said
        assert f"folders: 13 files in {tmp_path / 'out'}" in said
        assert f"Left out: {NAMES[3]}: does not exist" in said

    def test_many_notes_and_a_file(
        self, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        save_run(run, tmp_path / "run")
        result = export_folder(tmp_path / "run", "book", tmp_path / "out.html", Choices())
        show_export({**result, "notes": [f"note {n}" for n in range(10)]})
        said = capsys.readouterr().out
        assert f"book: {tmp_path / 'out.html'}\n" in said
        assert "2 more are left out" in said

    def test_no_box_is_unknown_that_an_answer_settles(self, run: Run, tmp_path: Path) -> None:
        """Image 6 has one region, which resembles no cluster."""
        save_run(run, tmp_path / "run")
        before = export_folder(tmp_path / "run", "coco", tmp_path / "a", Choices())
        with Session(tmp_path / "run") as session:
            session.edit("move", {"images": [6], "to": "new", "name": "crack"}, 0)
        after = export_folder(tmp_path / "run", "coco", tmp_path / "b", Choices())
        assert (before["unknown_regions"], after["unknown_regions"]) == (1, 0)
        document = json.loads((tmp_path / "b/annotations/instances_default.json").read_text())
        names = {one["id"]: one["name"] for one in document["categories"]}
        shown = [
            names[one["category_id"]] for one in document["annotations"] if one["image_id"] == 7
        ]
        assert shown == ["crack"]

    def test_a_later_name_is_exported(self, run: Run, tmp_path: Path) -> None:
        save_run(run, tmp_path / "run")
        with Session(tmp_path / "run") as session:
            session.edit("name", {"group": 1, "name": "streak"}, session.version, "")
        export_folder(tmp_path / "run", "folders", tmp_path / "out", Choices())
        assert (tmp_path / "out/streak").is_dir()

    def test_what_nobody_decided_is_where_it_is_suggested(self, run: Run, tmp_path: Path) -> None:
        """Two images are answered; the others have the group and the probability of the model."""
        save_run(run, tmp_path / "run")
        with Session(tmp_path / "run") as session:
            session.edit("move", {"images": [0], "to": "new", "name": "x, y"}, 0)
            session.edit("move", {"images": [5], "to": 1}, 1)
            state = session.state
            rejected = int(np.flatnonzero(state.suggestions.groups == 1)[-1])
            session.edit("reject", {"images": [rejected], "group": 1}, 2)
            state = session.state
        result = export_folder(tmp_path / "run", "csv", tmp_path / "out", Choices())
        assert result["decided"] == 2
        images = list(csv.DictReader(io.StringIO((tmp_path / "out/images.csv").read_text())))
        assert [row["decided"] == "true" for row in images] == [row in (0, 5) for row in range(12)]
        assert images[0]["group"] == "x, y"
        groups = state.suggestions.groups.tolist()
        assert [int(row["group_id"]) for row in images] == groups
        assert groups != state.labelling.labels.tolist()
        for row, sure in zip(images, state.suggestions.probability.tolist(), strict=True):
            assert row["probability"] == ("" if np.isnan(sure) else f"{sure:.6g}")
        assert any(row["probability"] for row in images)
        assert images[rejected]["group_id"] != "1"
        # A run in Python says the same.
        opened = open_run(tmp_path / "run")
        opened.export("csv", tmp_path / "again")
        assert contents(tmp_path / "again") == contents(tmp_path / "out")


def test_the_list_of_formats_loads_nothing_heavy() -> None:
    code = (
        "import sys; from flawsort.outputs.exports import FORMATS, export_run; "
        "print([name for name in ('PIL', 'scipy', 'jinja2', 'arro3', 'sklearn') "
        "if name in sys.modules], *FORMATS)"
    )
    answer = run_code(code)
    assert answer.out.split("] ")[0] == "["
    assert answer.out.split("] ")[1].split() == list(FORMATS)


@pytest.mark.parametrize("format", FORMATS.values(), ids=lambda format: format.name)
def test_a_format_is_its_module_and_its_docs(format: Format) -> None:
    module, function = format.writer.split(":")
    writer = getattr(import_module(f"flawsort.outputs.exports.{module}"), function)
    assert list(signature(writer).parameters)[2] == "link"
    assert format.title
    assert format.words[0].isalpha()
    assert len(format.words) <= 61  # beside its name in a line of the help
    assert not format.words.endswith(".")
    documents = [page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.md")]
    assert any(re.search(rf"^\|[^|]*`{format.name}`", text, re.M) for text in documents)


def test_first_labelling_is_exported_as_it_is(run: Run, tmp_path: Path) -> None:
    export_run(run, first_labelling(run), "folders", tmp_path / "out")
    folders = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert folders == ["Group 0", "Group 1", "normal"]


@pytest.mark.parametrize("format", WITHOUT_IMAGES)
def test_what_holds_no_images_links_none(
    run: Run, labelling: Labelling, tmp_path: Path, format: str
) -> None:
    with pytest.raises(OptionError, match=f"and {format} has none. Got 'link'"):
        export_run(run, labelling, format, tmp_path / "out", choices=Choices(link="link"))


def test_an_image_that_a_person_put_among_the_normal_has_no_flaws(
    run: Run, labelling: Labelling, tmp_path: Path
) -> None:
    """Not even where a region of it is like a group of flaws."""
    row = run.table["name"].index(run.regions["name"][0])
    own = int(labelling.labels[row])
    groups = {**labelling.groups, own: replace(labelling.groups[own], role="normal")}
    here = np.arange(len(labelling.labels)) == row
    said = replace(labelling, groups=groups, confirmed=here)
    content = gather_content(run, said)
    assert content.regions[row] == ()
    assert any(content.regions)
