"""Exports read back by the tools that they are for, where these are installed.

FiftyOne needs a database of its own to open a dataset: here its reader of COCO files reads the
export, and the script that loads the rest is checked in test_fiftyone.py.
"""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flawsort import Run
from flawsort.labels.groups import Labelling
from flawsort.outputs.exports import Choices, export_run
from flawsort.outputs.exports.content import find_pictures, gather_content
from flawsort.outputs.exports.naming import distinct_titles, folder_names
from flawsort.outputs.printing import BROWSERS
from helpers.export_runs import HOSTILE_TITLES, NAMES, SIZES, hostile, make_run, named

# Other people's warnings are not ours to fix.
pytestmark = pytest.mark.filterwarnings("ignore")


def needs(module: str, package: str) -> pytest.MarkDecorator:
    missing = find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"not installed: pip install {package}")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parts")


@pytest.fixture(scope="module")
def run(parts: Path) -> Run:
    return make_run(parts / "plain")


@pytest.fixture(scope="module")
def labelling(run: Run) -> Labelling:
    return named(run, "dent; deep", "<streak> & \U0001f529")


TITLES = ["dent; deep", "<streak> & \U0001f529", "normal", "Unknown"]


def expected_regions(run: Run, labelling: Labelling) -> dict[str, list[tuple[str, Any]]]:
    """Of each image its regions: the title and the mask (height, width)."""
    content = gather_content(run, labelling)
    pictures, _ = find_pictures(content)
    return {
        picture.name: [
            (content.titles[region.group], picture.cut(region).whole())
            for region in picture.regions
        ]
        for picture in pictures
    }


def same(found: list[tuple[str, Any]], expected: list[tuple[str, Any]]) -> bool:
    """Whether two lists of titles and masks are the same in any order."""

    def keys(pairs: list[tuple[str, Any]]) -> list[tuple[str, tuple[int, ...], bytes]]:
        return sorted((title, mask.shape, mask.astype(bool).tobytes()) for title, mask in pairs)

    return keys(found) == keys(expected)


def box(mask: NDArray[np.bool_]) -> list[float]:
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return [columns[0], rows[0], np.ptp(columns) + 1, np.ptp(rows) + 1]


@needs("pycocotools", "pycocotools")
class TestPycocotools:
    def test_masks_boxes_and_areas(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        from pycocotools import mask as masks
        from pycocotools.coco import COCO

        export_run(run, labelling, "coco", tmp_path / "out")
        coco = COCO(str(tmp_path / "out/annotations/instances_default.json"))
        assert [one["name"] for one in coco.loadCats(coco.getCatIds())] == TITLES
        expected = expected_regions(run, labelling)
        for image in coco.loadImgs(coco.getImgIds()):
            annotations = coco.loadAnns(coco.getAnnIds(imgIds=image["id"]))
            found = []
            for one in annotations:
                packed = coco.annToRLE(one)
                assert masks.area(packed) == one["area"]
                assert masks.toBbox(packed).tolist() == one["bbox"]
                title = coco.loadCats(one["category_id"])[0]["name"]
                found.append((title, coco.annToMask(one)))
            assert same(found, expected[image["flawsort_name"]])

    def test_images_of_a_category(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        from pycocotools.coco import COCO

        export_run(run, labelling, "coco", tmp_path / "out")
        coco = COCO(str(tmp_path / "out/annotations/instances_default.json"))
        (category,) = coco.getCatIds(catNms=["dent; deep"])
        assert sorted(coco.getImgIds(catIds=[category])) == [1, 2]


@needs("datumaro", "datumaro")
class TestDatumaro:
    def read(self, folder: Path, format: str) -> tuple[Any, list[str], Any]:
        import datumaro

        dataset = datumaro.Dataset.import_from(str(folder), format)
        kinds = datumaro.AnnotationType
        return dataset, [one.name for one in dataset.categories()[kinds.label].items], kinds

    def check(self, folder: Path, format: str, run: Run, labelling: Labelling) -> None:
        dataset, labels, kinds = self.read(folder, format)
        assert labels == TITLES
        expected = expected_regions(run, labelling)
        assert sorted(item.id for item in dataset) == sorted(name[:-4] for name in NAMES)
        for item in dataset:
            regions = expected[f"{item.id}.png"]
            masks = [one for one in item.annotations if one.type == kinds.mask]
            assert same([(labels[one.label], one.image) for one in masks], regions)
            boxes = [one for one in item.annotations if one.type == kinds.bbox]
            found = sorted((labels[one.label], *one.get_bbox()) for one in boxes)
            assert found == sorted((title, *box(mask)) for title, mask in regions)
            width, height = SIZES[NAMES.index(f"{item.id}.png") % len(SIZES)]
            assert item.media.size == (height, width)
            assert item.media.data.shape[:2] == (height, width)

    def test_coco(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        export_run(run, labelling, "coco", tmp_path / "out")
        self.check(tmp_path / "out", "coco_instances", run, labelling)

    def test_cvat(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        export_run(run, labelling, "cvat", tmp_path / "out")
        self.check(tmp_path / "out", "cvat", run, labelling)
        dataset, labels, kinds = self.read(tmp_path / "out", "cvat")
        tags = {
            item.id: [labels[one.label] for one in item.annotations if one.type == kinds.label]
            for item in dataset
        }
        assert tags[NAMES[0][:-4]] == TITLES[:2]
        assert tags[NAMES[11][:-4]] == ["normal"]

    @pytest.mark.parametrize(("format", "name"), [("coco", "coco_instances"), ("cvat", "cvat")])
    def test_hostile_names(self, format: str, name: str, tmp_path: Path) -> None:
        run, labelling = hostile(tmp_path / "parts")
        export_run(run, labelling, format, tmp_path / "out")
        dataset, labels, _ = self.read(tmp_path / "out", name)
        assert len(list(dataset)) == len(run.table["name"])
        assert all(item.media.data is not None for item in dataset)
        longest = 64 if format == "cvat" else None
        assert labels == distinct_titles(distinct_titles(HOSTILE_TITLES), longest)


@needs("datasets", "datasets")
class TestDatasets:
    def load(self, folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        import datasets

        datasets.disable_progress_bars()
        return datasets.load_dataset("imagefolder", data_dir=str(folder), cache_dir=str(cache))

    def test_imagefolder(
        self, run: Run, labelling: Labelling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        export_run(run, labelling, "imagefolder", tmp_path / "out")
        loaded = self.load(tmp_path / "out", tmp_path / "cache", monkeypatch)
        assert list(loaded) == ["train"]
        rows = list(loaded["train"])
        assert [row["name"] for row in rows] == list(NAMES)
        assert [row["image"].size for row in rows] == [SIZES[n % len(SIZES)] for n in range(12)]
        assert rows[0]["kinds"] == TITLES[:2]
        assert [row["decided"] for row in rows] == [row in (0, 5) for row in range(12)]
        encoded = loaded["train"].class_encode_column("label")
        assert sorted(encoded.features["label"].names) == sorted(TITLES[:3])
        expected = expected_regions(run, labelling)
        for row in rows:
            found = []
            for title, one in zip(
                row["objects"]["category"], row["objects"]["segmentation"], strict=True
            ):
                flat = np.repeat(np.arange(len(one["counts"])) % 2 == 1, one["counts"])
                found.append((title, np.ascontiguousarray(flat.reshape(one["size"][::-1]).T)))
            assert same(found, expected[row["name"]])

    def test_splits_are_not_guessed_from_names(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = [f"{('test', 'val', 'dev/test', 'x')[n % 4]}/train-{n}.png" for n in range(12)]
        run = make_run(tmp_path / "parts", names=names, regions=())
        export_run(run, named(run, "test", "validation"), "imagefolder", tmp_path / "out")
        loaded = self.load(tmp_path / "out", tmp_path / "cache", monkeypatch)
        assert {split: len(rows) for split, rows in loaded.items()} == {"train": 12}
        assert sorted(loaded["train"]["name"]) == sorted(names)

    def test_hostile_names(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run, labelling = hostile(tmp_path / "parts")
        export_run(run, labelling, "imagefolder", tmp_path / "out")
        loaded = self.load(tmp_path / "out", tmp_path / "cache", monkeypatch)
        assert all(row["image"].size for row in loaded["train"])
        assert set(loaded["train"]["label"]) == set(distinct_titles(HOSTILE_TITLES))


@needs("label_studio_sdk", "label-studio-sdk")
class TestLabelStudioSdk:
    @pytest.mark.parametrize("odd", [False, True])
    def test_predictions_fit_the_configuration(
        self, run: Run, labelling: Labelling, odd: bool, tmp_path: Path
    ) -> None:
        from label_studio_sdk.label_interface import LabelInterface

        shown = hostile(tmp_path / "parts") if odd else (run, labelling)
        export_run(*shown, "label-studio", tmp_path / "out")
        interface = LabelInterface((tmp_path / "out/config.xml").read_text("utf-8"))
        interface.validate()
        for task in json.loads((tmp_path / "out/tasks.json").read_text("utf-8")):
            for prediction in task["predictions"]:
                assert not interface.validate_prediction(prediction, return_errors=True)

    def test_masks(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        from label_studio_sdk.converter.brush import decode_rle

        export_run(run, labelling, "label-studio", tmp_path / "out")
        expected = expected_regions(run, labelling)
        for task in json.loads((tmp_path / "out/tasks.json").read_text("utf-8")):
            found = []
            for one in task["predictions"][0]["result"]:
                if one["type"] == "brushlabels":
                    shape = (one["original_height"], one["original_width"], 4)
                    channels = decode_rle(one["value"]["rle"]).reshape(shape)
                    assert set(np.unique(channels)) <= {0, 255}
                    found.append((one["value"]["brushlabels"][0], channels[..., 3] > 0))
            assert same(found, expected[task["data"]["name"]])


@needs("ultralytics", "ultralytics")
class TestUltralytics:
    @pytest.fixture(autouse=True)
    def _alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its settings are in a folder of the test, and it looks for no network."""
        monkeypatch.setenv("YOLO_CONFIG_DIR", str(tmp_path / "settings"))
        monkeypatch.setenv("YOLO_OFFLINE", "true")

    @pytest.mark.parametrize("unknown", ["leave-out", "mark"])
    def test_boxes(self, run: Run, labelling: Labelling, tmp_path: Path, unknown: str) -> None:
        from ultralytics.data.dataset import YOLODataset
        from ultralytics.data.utils import check_det_dataset

        out = tmp_path / "out"
        export_run(run, labelling, "yolo", out, choices=Choices(unknown=unknown))
        data = check_det_dataset(str(out / "data.yaml"), autodownload=False)
        titles = [data["names"][number] for number in range(data["nc"])]
        assert titles == [*TITLES[:2], *(["Unknown"] if unknown == "mark" else [])]
        found: dict[bytes, list[tuple[str, list[float]]]] = {}
        for side in ("train", "val"):
            read = YOLODataset(data[side], data=data, task="detect", augment=False, imgsz=32)
            for label in read.labels:
                height, width = label["shape"]
                scale = np.array([width, height, width, height])
                boxes = zip(label["cls"].ravel(), label["bboxes"] * scale, strict=True)
                found[Path(label["im_file"]).read_bytes()] = [
                    (titles[int(number)], centred.tolist()) for number, centred in boxes
                ]
        expected = expected_regions(run, labelling)
        assert len(found) == len(NAMES)
        for row, name in enumerate(NAMES):
            boxes_of = [(title, box(mask)) for title, mask in expected[name] if title in titles]
            read_back = found[Path(run.table["path"][row]).read_bytes()]
            assert [title for title, _ in read_back] == [title for title, _ in boxes_of]
            for (_, (x, y, wide, high)), (_, known) in zip(read_back, boxes_of, strict=True):
                corner = [x - wide / 2, y - high / 2, wide, high]
                assert corner == pytest.approx(known, abs=1e-3)

    def test_classes(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        from ultralytics.data.utils import check_cls_dataset

        export_run(run, labelling, "yolo-classify", tmp_path / "out")
        data = check_cls_dataset(str(tmp_path / "out"))
        assert sorted(data["names"].values()) == sorted(folder_names(TITLES[:3]))
        sides = [list((tmp_path / "out" / side).rglob("*.png")) for side in ("train", "val")]
        assert sum(map(len, sides)) == len(NAMES)


@needs("fiftyone", "fiftyone")
class TestFiftyOne:
    def test_boxes_and_masks(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        import fiftyone.utils.coco as reader

        export_run(run, labelling, "fiftyone", tmp_path / "out")
        _, classes, _, images, annotations = reader.load_coco_detection_annotations(
            str(tmp_path / "out/annotations/instances_default.json"), extra_attrs=["heat"]
        )
        assert list(classes.values()) == TITLES
        expected = expected_regions(run, labelling)
        assert len(images) == len(NAMES)
        for number, image in images.items():
            size, found = (image["width"], image["height"]), []
            for one in annotations.get(number, []):
                shape = one.to_detection(size, classes_map=classes, load_segmentation=True)
                x, y, wide, high = np.rint(np.array(shape.bounding_box) * [*size, *size]).astype(
                    int
                )
                whole = np.zeros(size[::-1], bool)
                whole[y : y + high, x : x + wide] = shape.mask
                found.append((shape.label, whole))
            assert same(found, expected[image["flawsort_name"]])


@needs("pyarrow", "pyarrow")
class TestPyarrow:
    def test_tables(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        from pyarrow import csv, parquet

        export_run(run, labelling, "parquet", tmp_path / "parquet")
        export_run(run, labelling, "csv", tmp_path / "csv")
        for name in ("images", "regions", "groups"):
            table = parquet.read_table(tmp_path / "parquet" / f"{name}.parquet")
            text = csv.read_csv(tmp_path / "csv" / f"{name}.csv")
            assert table.column_names == text.column_names
            assert table.num_rows == text.num_rows
        read = parquet.read_table(tmp_path / "parquet/images.parquet").to_pydict()
        assert read["name"] == list(NAMES)
        assert read["decided"] == [row in (0, 5) for row in range(12)]


@pytest.mark.skipif(
    not any(map(shutil.which, BROWSERS)),
    reason="no Chromium or Chrome on PATH: apt install chromium",
)
class TestChromium:
    def test_the_book_as_a_pdf(self, run: Run, labelling: Labelling, tmp_path: Path) -> None:
        for name in ("one.pdf", "two.pdf"):
            export_run(run, labelling, "book-pdf", tmp_path / name)
        printed = (tmp_path / "one.pdf").read_bytes()
        assert printed[:5] == b"%PDF-"
        assert printed == (tmp_path / "two.pdf").read_bytes()
        # The cover, and a page for each of the three groups.
        assert printed.count(b"/Type /Page\n") == 4
