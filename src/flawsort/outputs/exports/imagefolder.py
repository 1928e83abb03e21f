"""Hugging Face imagefolder: the images in train/, and their labels in metadata.jsonl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flawsort.core.records import SetAside
from flawsort.outputs.exports.content import Content, Picture, find_pictures
from flawsort.outputs.exports.naming import flat_names
from flawsort.outputs.exports.writing import Link, place_image, write_text

# One split without folders: folders named test or val would be read as other splits.
SPLIT = "train"
METADATA = "metadata.jsonl"
_GUIDE = """---
task_categories:
- image-classification
---

# Images sorted by kind of flaw

    from datasets import load_dataset

    images = load_dataset("imagefolder", data_dir="this folder", split="train")
    images = images.class_encode_column("label")  # labels as numbers

`label` is the group of an image, `kinds` are all kinds of flaw that it shows, its own first;
`role` is flaw, normal or unsure; `severity` is critical, major, minor or none, empty if nobody said
it; `note` is what people wrote about the image; `decided` says whether a person decided the group.
`objects`, if there are any, are the regions that stand out: `bbox` in pixels (left, top, width,
height), `category`, and `segmentation` as COCO's run lengths, column by column.
"""


def write(content: Content, folder: Path, link: Link) -> list[SetAside]:
    """train/ with the images and metadata.jsonl, and README.md."""
    pictures, left_out = find_pictures(content)
    has_regions = any(picture.regions for picture in pictures)
    is_taught = any(content.probability[one.row] is not None for one in pictures)
    names = flat_names([METADATA, *(picture.name for picture in pictures)])[1:]
    lines = []
    for picture, name in zip(pictures, names, strict=True):
        place_image(picture.source, folder / SPLIT / name, link)
        entry = {"file_name": name, **_facts(content, picture)}
        if is_taught:  # a column without any value would have no type
            entry["probability"] = content.probability[picture.row]
        if has_regions:
            entry["objects"] = _objects(content, picture)
        lines.append(json.dumps(entry, ensure_ascii=False, allow_nan=False))
    write_text(folder / SPLIT / METADATA, "\n".join([*lines, ""]))
    write_text(folder / "README.md", _GUIDE)
    return left_out


def _facts(content: Content, picture: Picture) -> dict[str, Any]:
    row = picture.row
    return {
        "name": picture.name,
        "label": content.title(row),
        "role": content.role(row),
        "severity": content.severity(row),
        "note": content.note(row),
        "kinds": content.kind_titles(row),
        "decided": content.decided(row),
        "width": picture.size[0],
        "height": picture.size[1],
    }


def _objects(content: Content, picture: Picture) -> dict[str, Any]:
    width, height = picture.size
    cutouts = [picture.cut(region) for region in picture.regions]
    return {
        "bbox": [list(cutout.box) for cutout in cutouts],
        "category": [content.titles[region.group] for region in picture.regions],
        "segmentation": [
            {"size": [height, width], "counts": cutout.column_runs()} for cutout in cutouts
        ],
    }
