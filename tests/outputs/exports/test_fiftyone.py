"""The export for FiftyOne: what COCO holds, and a script that says to FiftyOne what is where."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from flawsort import Run
from flawsort.labels.groups import Labelling
from flawsort.outputs.exports import export_run
from helpers.export_runs import NAMES, make_run, named
from helpers.plates import contents


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "parts")


@pytest.fixture
def labelling(run: Run) -> Labelling:
    return named(run, "dent; deep", "streak")


class Label(SimpleNamespace):
    """A label of FiftyOne: what it is made with."""


class Sample(dict[str, Any]):
    """Fields by name."""


class Dataset:
    """The part of fiftyone.Dataset that the script uses, after FiftyOne's documentation: with
    include_id, label_field names a field for the labels and one for the id of the image; with
    include_annotation_id each label has coco_id; regions have no confidence of their own."""

    options: dict[str, Any]

    @classmethod
    def from_dir(cls, **options: Any) -> Dataset:
        made = cls()
        made.options = options
        made.samples = list(cls._read(options))
        return made

    @staticmethod
    def _read(options: dict[str, Any]) -> Iterator[Sample]:
        document = json.loads(Path(options["labels_path"]).read_text("utf-8"))
        fields, titles = options["label_field"], {}
        for category in document["categories"]:
            titles[category["id"]] = category["name"]
        for image in document["images"]:
            path = Path(options["data_path"]) / image["file_name"]
            assert path.is_file()
            regions = [
                Label(label=titles[one["category_id"]], confidence=None, coco_id=one["id"])
                for one in document["annotations"]
                if one["image_id"] == image["id"]
            ]
            found = Label(detections=regions) if regions else None
            yield Sample(
                {
                    "filepath": path,
                    fields["segmentations"]: found,
                    fields["coco_id"]: image["id"],
                }
            )

    def iter_samples(self, *, autosave: bool) -> Iterator[Sample]:
        assert autosave
        return iter(self.samples)


@pytest.fixture
def fiftyone(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module: Any = ModuleType("fiftyone")
    module.Dataset, module.Classification, module.Classifications = Dataset, Label, Label
    module.types = SimpleNamespace(COCODetectionDataset="coco")
    monkeypatch.setitem(sys.modules, "fiftyone", module)
    return module


def test_it_is_the_coco_export_with_a_script(
    run: Run, labelling: Labelling, tmp_path: Path
) -> None:
    export_run(run, labelling, "fiftyone", tmp_path / "out")
    export_run(run, labelling, "coco", tmp_path / "coco")
    found, coco = contents(tmp_path / "out"), contents(tmp_path / "coco")
    script = found.pop("load_fiftyone.py")
    compile(script, "load_fiftyone.py", "exec")
    marker = ".flawsort-export.json"
    assert {name: data for name, data in found.items() if name != marker} == {
        name: data for name, data in coco.items() if name != marker
    }


@pytest.mark.usefixtures("fiftyone")
def test_the_script_loads_every_image(run: Run, labelling: Labelling, tmp_path: Path) -> None:
    export_run(run, labelling, "fiftyone", tmp_path / "out")
    script: dict[str, Any] = {"__file__": str(tmp_path / "out/load_fiftyone.py"), "__name__": "x"}
    exec((tmp_path / "out/load_fiftyone.py").read_text("utf-8"), script)
    assert script["ANNOTATIONS"].is_file()
    assert script["IMAGES"].is_dir()
    dataset = script["load"]("parts")
    assert dataset.options["name"] == "parts"
    assert [sample["name"] for sample in dataset.samples] == list(NAMES)
    first, last = dataset.samples[0], dataset.samples[-1]
    assert first["label"].label == "dent; deep"
    assert [kind.label for kind in first["kinds"].classifications] == ["dent; deep", "streak"]
    assert (first["role"], first["decided"]) == ("flaw", True)
    assert [(one.label, one.confidence) for one in first["regions"].detections] == [
        ("dent; deep", 0.5), ("streak", 0.5),
    ]  # fmt: skip
    assert (last["label"].label, last["role"], last["decided"]) == ("normal", "normal", False)
    assert last["regions"] is None
