"""CVAT for images 1.1: tags for the kinds of an image, boxes and masks for its regions."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from flawsort.core.records import SetAside
from flawsort.outputs.exports.content import Content, Picture, find_pictures
from flawsort.outputs.exports.naming import distinct_titles
from flawsort.outputs.exports.writing import Link, place_images, write_json

ANNOTATIONS = "annotations.xml"
LABELS = "labels.json"
# CVAT truncates longer label names, and then does not find them.
LONGEST_LABEL = 64


def write(content: Content, folder: Path, link: Link) -> list[SetAside]:
    """annotations.xml, the images in images/, and labels.json to paste as a task's raw labels."""
    pictures, left_out = find_pictures(content)
    titles = content.label_titles()
    labels = dict(zip(titles, distinct_titles([*titles.values()], LONGEST_LABEL), strict=True))
    root = ElementTree.Element("annotations")
    _text(root, "version", "1.1")
    _add_meta(root, list(labels.values()), len(pictures))
    for number, picture in enumerate(pictures):
        _add_image(root, content, picture, number, labels)
    ElementTree.indent(root)
    document = ElementTree.tostring(root, "utf-8", xml_declaration=True)
    (folder / ANNOTATIONS).write_bytes(document + b"\n")
    raw = [{"name": label, "type": "any", "attributes": []} for label in labels.values()]
    write_json(folder / LABELS, raw)
    (folder / "images").mkdir()
    place_images(pictures, folder / "images", link)
    return left_out


def _add_meta(root: ElementTree.Element, labels: list[str], n_images: int) -> None:
    task = ElementTree.SubElement(ElementTree.SubElement(root, "meta"), "task")
    for name, value in (("name", "flawsort"), ("size", str(n_images)), ("mode", "annotation")):
        _text(task, name, value)
    listed = ElementTree.SubElement(task, "labels")
    for label in labels:
        entry = ElementTree.SubElement(listed, "label")
        _text(entry, "name", label)
        _text(entry, "type", "any")
        ElementTree.SubElement(entry, "attributes")


def _add_image(
    root: ElementTree.Element,
    content: Content,
    picture: Picture,
    number: int,
    labels: dict[int, str],
) -> None:
    width, height = picture.size
    image = ElementTree.SubElement(
        root, "image", id=str(number), name=picture.file, width=str(width), height=str(height)
    )
    source = "manual" if content.decided(picture.row) else "auto"
    for kind in content.kinds[picture.row]:
        ElementTree.SubElement(image, "tag", label=labels[kind], source=source)
    for place, region in enumerate(picture.regions, start=1):
        cutout = picture.cut(region)
        left, top, wide, high = cutout.box
        # The box and the mask of a region are one object, so they share a group.
        common = {"label": labels[region.group], "source": "auto", "occluded": "0", "z_order": "0"}
        common["group_id"] = str(place)
        corners = {"xtl": left, "ytl": top, "xbr": left + wide, "ybr": top + high}
        box = {name: f"{value:.2f}" for name, value in corners.items()}
        ElementTree.SubElement(image, "box", {**common, **box})
        runs = ", ".join(map(str, cutout.part_runs()))
        part = {"left": left, "top": top, "width": wide, "height": high}
        sides = {name: str(value) for name, value in part.items()}
        ElementTree.SubElement(image, "mask", {**common, "rle": runs, **sides})


def _text(parent: ElementTree.Element, name: str, value: str) -> None:
    ElementTree.SubElement(parent, name).text = value
