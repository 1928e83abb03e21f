"""FiftyOne: the COCO export, and a script that loads it with FiftyOne's own importer."""

from __future__ import annotations

from pathlib import Path

from flawsort.core.records import SetAside
from flawsort.outputs.exports import coco
from flawsort.outputs.exports.content import Content
from flawsort.outputs.exports.writing import Link, write_text

SCRIPT = "load_fiftyone.py"
_LOADER = f'''"""Open this export in FiftyOne:

    pip install fiftyone pycocotools
    python {SCRIPT}

Or in Python, from this folder: `from load_fiftyone import load; dataset = load()`.

`label` is the group of an image, `kinds` are all kinds of flaw that it shows, its own first, and
`role` is flaw, normal or unsure. `confirmed` says whether a person confirmed the group. `regions`
are the places that stand out, with boxes, masks and how clearly each is like its group.
"""

import json
from pathlib import Path

import fiftyone as fo

FOLDER = Path(__file__).resolve().parent
ANNOTATIONS = FOLDER / "{coco.ANNOTATIONS}"
IMAGES = FOLDER / "{coco.IMAGES}"


def load(name=None):
    """A FiftyOne dataset of this export. name: of the dataset; FiftyOne makes one up if omitted."""
    dataset = fo.Dataset.from_dir(
        dataset_type=fo.types.COCODetectionDataset,
        data_path=str(IMAGES),
        labels_path=str(ANNOTATIONS),
        name=name,
        label_types=["segmentations"],
        label_field={{"segmentations": "regions", "coco_id": "coco_id"}},
        include_id=True,
        include_annotation_id=True,
        extra_attrs=["heat"],
    )
    document = json.loads(ANNOTATIONS.read_text("utf-8"))
    images = {{image["id"]: image for image in document["images"]}}
    attributes = {{one["id"]: one["attributes"] for one in document["annotations"]}}
    for sample in dataset.iter_samples(autosave=True):
        image = images[sample["coco_id"]]
        kinds = [fo.Classification(label=kind) for kind in image["flawsort_kinds"]]
        sample["name"] = image["flawsort_name"]
        sample["label"] = fo.Classification(label=image["flawsort_group"])
        sample["kinds"] = fo.Classifications(classifications=kinds)
        sample["role"] = image["flawsort_role"]
        sample["confirmed"] = image["flawsort_confirmed"]
        for region in sample["regions"].detections if sample["regions"] else ():
            region.confidence = attributes[region.coco_id]["confidence"]
    return dataset


if __name__ == "__main__":
    fo.launch_app(load()).wait()
'''


def write(content: Content, folder: Path, link: Link) -> list[SetAside]:
    """What `coco` writes, and load_fiftyone.py."""
    left_out = coco.write(content, folder, link)
    write_text(folder / SCRIPT, _LOADER)
    return left_out
