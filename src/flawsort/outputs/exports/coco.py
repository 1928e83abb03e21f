"""COCO instances: boxes and masks of the regions; the groups of images beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flawsort._version import __version__
from flawsort.core.records import SetAside
from flawsort.outputs.exports.content import UNKNOWN, Content, Picture, Region, find_pictures
from flawsort.outputs.exports.writing import Link, place_images, write_json

ANNOTATIONS = "annotations/instances_default.json"
IMAGES = "images/default"


def write(content: Content, folder: Path, link: Link) -> list[SetAside]:
    """annotations/instances_default.json, and the images in images/default.

    Categories are the groups. Their ids are the group ids plus one, since 0 stands for none. An
    image without regions has no annotation; the entry of each image holds its group in
    flawsort_group and similar fields.
    """
    pictures, left_out = find_pictures(content)
    write_json(folder / ANNOTATIONS, _document(content, pictures), indent=None)
    (folder / IMAGES).mkdir(parents=True)
    place_images(pictures, folder / IMAGES, link)
    return left_out


def _document(content: Content, pictures: list[Picture]) -> dict[str, Any]:
    roles = {group.id: group.role for group in content.groups}
    severities = {group.id: group.severity for group in content.groups}
    return {
        "info": {"description": "Exported from flawsort", "version": __version__},
        "licenses": [],
        "categories": [
            {
                "id": _category(content, group),
                "name": title,
                "supercategory": roles.get(group, ""),
                "flawsort_severity": severities.get(group, ""),
            }
            for group, title in content.label_titles().items()
        ],
        "images": [_image(content, picture) for picture in pictures],
        "annotations": [
            _annotation(content, picture, region)
            for picture in pictures
            for region in picture.regions
        ],
    }


def _category(content: Content, group: int) -> int:
    return content.labelling.next_id + 1 if group == UNKNOWN else group + 1


def _image(content: Content, picture: Picture) -> dict[str, Any]:
    return {
        "id": picture.row + 1,
        "file_name": picture.file,
        "width": picture.size[0],
        "height": picture.size[1],
        "flawsort_name": picture.name,
        "flawsort_group": content.title(picture.row),
        "flawsort_role": content.role(picture.row),
        "flawsort_severity": content.severity(picture.row),
        "flawsort_note": content.note(picture.row),
        "flawsort_kinds": content.kind_titles(picture.row),
        "flawsort_probability": content.probability[picture.row],
        "flawsort_decided": content.decided(picture.row),
    }


def _annotation(content: Content, picture: Picture, region: Region) -> dict[str, Any]:
    cutout = picture.cut(region)
    width, height = picture.size
    return {
        "id": region.place + 1,
        "image_id": picture.row + 1,
        "category_id": _category(content, region.group),
        "bbox": list(cutout.box),
        "area": cutout.area,
        "iscrowd": 0,
        "segmentation": {"size": [height, width], "counts": cutout.column_runs()},
        "attributes": {
            "heat": round(region.heat, 6),
            "confidence": round(region.confidence, 6),
        },
    }
