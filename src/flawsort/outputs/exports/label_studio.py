"""Label Studio: tasks with predictions, the labelling configuration, and how to import them."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import numpy as np

from flawsort._version import __version__
from flawsort.core.records import SetAside
from flawsort.outputs.exports.content import UNKNOWN, Content, Picture, Region, find_pictures
from flawsort.outputs.exports.masks import Cutout
from flawsort.outputs.exports.writing import Link, place_images, write_json, write_text

TASKS, CONFIG, README, IMAGES = "tasks.json", "config.xml", "README.md", "images"
# The packing of run lengths in Label Studio's masks: the bits of a value, and the four possible
# widths of a length; each run states its width.
_VALUE_BITS, _WIDTHS = 8, (3, 4, 8, 16)
_GUIDE = """# Import into Label Studio

The images of this export are served by Label Studio itself, from this folder.

1. Start Label Studio with this folder as the root of its local files. In this folder:

       export LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true
       export LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT="$PWD"
       label-studio start

2. Create a project. Under Settings > Labeling Interface > Code, paste `config.xml`.
3. Under Settings > Cloud Storage, add a source storage of the type Local Files. Its path is the
   absolute path of the folder `images` in this export. Save it, but do not sync it: it only
   permits Label Studio to read the files.
4. Import `tasks.json`.

In `tasks.json` the address of an image is `/data/local-files/?d=` and its path below this folder.
The kinds, boxes and masks are predictions, from which annotators start. `name` and `decided` of a
task hold the name of the image in the run and whether a person decided its group.
"""


def write(content: Content, folder: Path, link: Link) -> list[SetAside]:
    """tasks.json, config.xml, README.md, and the images in images/."""
    pictures, left_out = find_pictures(content)
    # Label Studio reads $word, even within a label, as a field of the task.
    labels = {
        group: title.replace("$", "\uff04") for group, title in content.label_titles().items()
    }
    tasks = [_task(content, picture, labels) for picture in pictures]
    write_json(folder / TASKS, tasks, indent=None)
    write_text(folder / CONFIG, _config(labels))
    write_text(folder / README, _GUIDE)
    (folder / IMAGES).mkdir()
    place_images(pictures, folder / IMAGES, link)
    return left_out


def pack_mask(cutout: Cutout) -> list[int]:
    """A mask as the bytes of Label Studio's RLE: four equal channels a pixel, 255 inside."""
    width, height = cutout.size
    bits = [_bits(4 * width * height, 32), _bits(_VALUE_BITS - 1, 5)]
    bits += [_bits(width_bits - 1, 4) for width_bits in _WIDTHS]
    longest = 2 ** _WIDTHS[-1]
    for place, length in enumerate(cutout.row_runs()):
        value = _bits(255 if place % 2 else 0, _VALUE_BITS)
        left = 4 * length
        while left:
            run = min(left, longest)
            index = next(i for i, size in enumerate(_WIDTHS) if run <= 2**size)
            # 1: one value for the whole run; the index of the width; the length minus one.
            bits += ["1", _bits(index, 2), _bits(run - 1, _WIDTHS[index]), value]
            left -= run
    flags = np.frombuffer("".join(bits).encode(), np.uint8) == ord("1")
    packed: list[int] = np.packbits(flags).tolist()
    return packed


def _bits(value: int, width: int) -> str:
    return format(value, f"0{width}b")


def _task(content: Content, picture: Picture, labels: dict[int, str]) -> dict[str, Any]:
    row = picture.row
    kinds = {
        "id": f"kinds-{row}",
        "from_name": "kinds",
        "to_name": "image",
        "type": "choices",
        "value": {"choices": [labels[kind] for kind in content.kinds[row]]},
    }
    regions = chain.from_iterable(_region(picture, region, labels) for region in picture.regions)
    return {
        "data": {
            "image": f"/data/local-files/?d={quote(f'{IMAGES}/{picture.file}')}",
            "name": picture.name,
            "group": labels[int(content.labelling.labels[row])],
            "role": content.role(row),
            "severity": content.severity(row),
            "note": content.note(row),
            "probability": content.probability[row],
            "decided": content.decided(row),
        },
        "predictions": [{"model_version": f"flawsort {__version__}", "result": [kinds, *regions]}],
    }


def _region(picture: Picture, region: Region, labels: dict[int, str]) -> list[dict[str, Any]]:
    cutout, (width, height) = picture.cut(region), picture.size
    left, top, wide, high = cutout.box
    common = {
        "to_name": "image",
        "original_width": width,
        "original_height": height,
        "image_rotation": 0,
        "score": round(region.confidence, 6),
    }
    box = {
        "x": round(100 * left / width, 6),
        "y": round(100 * top / height, 6),
        "width": round(100 * wide / width, 6),
        "height": round(100 * high / height, 6),
        "rotation": 0,
        "rectanglelabels": [labels[region.group]],
    }
    mask = {"format": "rle", "rle": pack_mask(cutout), "brushlabels": [labels[region.group]]}
    return [
        {"id": f"{kind}-{region.place}", "from_name": kind, "type": labelled, "value": value}
        | common
        for kind, labelled, value in (
            ("box", "rectanglelabels", box),
            ("mask", "brushlabels", mask),
        )
    ]


def _config(labels: dict[int, str]) -> str:
    view = ElementTree.Element("View")
    ElementTree.SubElement(view, "Image", name="image", value="$image", zoom="true")
    about = {"toName": "image", "showInline": "true"}
    choices = ElementTree.SubElement(
        view, "Choices", {"name": "kinds", "choice": "multiple", **about}
    )
    boxes = ElementTree.SubElement(view, "RectangleLabels", {"name": "box", **about})
    masks = ElementTree.SubElement(view, "BrushLabels", {"name": "mask", **about})
    for group, label in labels.items():
        if group != UNKNOWN:
            ElementTree.SubElement(choices, "Choice", value=label)
        ElementTree.SubElement(boxes, "Label", value=label)
        ElementTree.SubElement(masks, "Label", value=label)
    ElementTree.indent(view)
    return ElementTree.tostring(view, "unicode") + "\n"
