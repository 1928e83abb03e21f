"""A FiftyOneDataset on disk: metadata.json, samples.json and the images in data/."""

from __future__ import annotations

import base64
import hashlib
import io
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from flawsort.core.records import Bools, SetAside
from flawsort.outputs.exports.content import Content, Picture, Region, find_pictures
from flawsort.outputs.exports.masks import Cutout
from flawsort.outputs.exports.writing import Link, place_images, write_json, write_text

METADATA, SAMPLES, IMAGES = "metadata.json", "samples.json", "data"
# The layout is FiftyOne's own of this version. Later ones bring it up to date as they read it.
VERSION = "1.0.0"
_FIELDS, _LABELS = "fiftyone.core.fields", "fiftyone.core.labels"
_GUIDE = """# Open in FiftyOne

    import fiftyone as fo

    dataset = fo.Dataset.from_dir("this folder", dataset_type=fo.types.FiftyOneDataset)
    fo.launch_app(dataset)

Needs FiftyOne 1.0 or newer. `label` is the group of an image, `kinds` are all kinds of flaw that it
shows, `regions` are the places that stand out, with boxes and masks.
"""


def write(content: Content, folder: Path, link: Link) -> list[SetAside]:
    """For fo.Dataset.from_dir(folder, dataset_type=fo.types.FiftyOneDataset)."""
    pictures, left_out = find_pictures(content)
    write_json(folder / METADATA, _metadata(content))
    samples = [_sample(content, picture) for picture in pictures]
    write_json(folder / SAMPLES, {"samples": samples}, indent=None)
    write_text(folder / "README.md", _GUIDE)
    (folder / IMAGES).mkdir()
    place_images(pictures, folder / IMAGES, link)
    return left_out


def _metadata(content: Content) -> dict[str, Any]:
    return {
        "_id": _identity("dataset"),
        "name": "flawsort",
        "slug": "flawsort",
        "version": VERSION,
        "persistent": False,
        "media_type": "image",
        "group_media_types": {},
        "tags": [],
        "info": {
            "groups": [
                {"title": content.titles[group.id], "role": group.role} for group in content.groups
            ]
        },
        "app_config": {
            "grid_media_field": "filepath",
            "media_fields": ["filepath"],
            "modal_media_field": "filepath",
            "plugins": {},
        },
        "classes": {},
        "default_classes": list(content.label_titles().values()),
        "mask_targets": {},
        "default_mask_targets": {},
        "skeletons": {},
        "sample_fields": _sample_fields(),
        "frame_fields": [],
        "saved_views": [],
        "workspaces": [],
        "annotation_runs": {},
        "brain_methods": {},
        "evaluations": {},
        "runs": {},
    }


def _sample_fields() -> list[dict[str, Any]]:
    image = [_field(name, "Int") for name in ("size_bytes", "width", "height", "num_channels")]
    image.insert(1, _field("mime_type", "String"))
    label = [
        _field("id", "ObjectId", stored="_id"),
        _field("tags", "List", of="String"),
        _field("label", "String"),
        _field("confidence", "Float"),
    ]
    logits = _field("logits", "Vector")
    boxes = [_field("bounding_box", "List", of="Float"), _field("mask", "Array")]
    boxes += [_field("mask_path", "String"), _field("index", "Int")]
    return [
        _field("id", "ObjectId", stored="_id"),
        _field("filepath", "String"),
        _field("tags", "List", of="String"),
        _field("metadata", document="fiftyone.core.metadata.ImageMetadata", fields=image),
        _field("_media_type", "String"),
        _field("_rand", "Float"),
        _field("_dataset_id", "ObjectId"),
        _field("created_at", "DateTime", fixed=True),
        _field("last_modified_at", "DateTime", fixed=True),
        _field("name", "String"),
        _field("role", "String"),
        _field("confirmed", "Boolean"),
        _field("score", "Float"),
        _field("typicality", "Float"),
        _field("label", document=f"{_LABELS}.Classification", fields=[*label, logits]),
        _listing("kinds", "Classification", [*label, logits]),
        _listing("regions", "Detection", [*label, *boxes]),
    ]


def _field(
    name: str,
    kind: str = "EmbeddedDocument",
    *,
    of: str | None = None,
    document: str | None = None,
    fields: list[dict[str, Any]] | None = None,
    stored: str | None = None,
    fixed: bool = False,
) -> dict[str, Any]:
    """How FiftyOne describes a field of a sample or of a label."""
    return {
        "name": name,
        "ftype": f"{_FIELDS}.{kind}Field",
        "embedded_doc_type": document,
        "subfield": None if of is None else f"{_FIELDS}.{of}Field",
        "fields": fields or [],
        "db_field": stored or name,
        "description": None,
        "info": None,
        "read_only": fixed,
        "created_at": None,
    }


def _listing(name: str, label: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    """A field that holds a list of labels."""
    each = _field(
        f"{label.lower()}s",
        "List",
        of="EmbeddedDocument",
        document=f"{_LABELS}.{label}",
        fields=fields,
    )
    return _field(name, document=f"{_LABELS}.{label}s", fields=[each])


def _sample(content: Content, picture: Picture) -> dict[str, Any]:
    row, table = picture.row, content.run.table
    # The same each time for this image, and another one in any other set of images.
    key = f"{table['sha256'][row]} {picture.name}"
    kinds = [
        _label("Classification", f"{key} kind {place}", content.titles[kind])
        for place, kind in enumerate(content.kinds[row])
    ]
    regions = [
        _detection(picture.cut(region), region, content.titles[region.group], f"{key} {place}")
        for place, region in enumerate(picture.regions)
    ]
    return {
        "_id": _identity(key),
        "filepath": f"{IMAGES}/{picture.file}",
        "tags": [],
        "metadata": {
            "_cls": "ImageMetadata",
            "width": picture.size[0],
            "height": picture.size[1],
        },
        "_media_type": "image",
        # By which FiftyOne draws samples at random.
        "_rand": int(_digest(f"{key} draw")[:8], 16) / 2**32,
        "name": picture.name,
        "role": content.role(row),
        "confirmed": content.confirmed(row),
        "score": float(table["score"][row]),
        "typicality": float(table["typicality"][row]),
        "label": _label("Classification", f"{key} label", content.title(row)),
        "kinds": {"_cls": "Classifications", "classifications": kinds},
        "regions": {"_cls": "Detections", "detections": regions},
    }


def _label(kind: str, identity: str, title: str) -> dict[str, Any]:
    return {"_id": _identity(identity), "_cls": kind, "tags": [], "label": title}


def _detection(cutout: Cutout, region: Region, title: str, key: str) -> dict[str, Any]:
    left, top, wide, high = cutout.box
    width, height = cutout.size
    return {
        **_label("Detection", f"{key} region", title),
        "attributes": {},
        "bounding_box": [left / width, top / height, wide / width, high / height],
        "mask": {"$binary": {"base64": _packed(cutout.mask), "subType": "00"}},
        "confidence": region.confidence,
    }


def _packed(mask: Bools) -> str:
    """An array as FiftyOne keeps it: a compressed .npy file."""
    stream = io.BytesIO()
    np.save(stream, mask, allow_pickle=False)
    return base64.b64encode(zlib.compress(stream.getvalue())).decode()


def _identity(of: str) -> dict[str, str]:
    """An id of 12 bytes."""
    return {"$oid": _digest(of)[:24]}


def _digest(of: str) -> str:
    return hashlib.sha256(f"flawsort {of}".encode()).hexdigest()
