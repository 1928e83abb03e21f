"""YOLO datasets for Ultralytics: boxes to train a detector, or folders for a classifier."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from PIL import Image

from flawsort.core.errors import InputError
from flawsort.core.records import SetAside
from flawsort.core.text import pluralise
from flawsort.outputs.exports.content import UNKNOWN, Content, Picture, find_pictures
from flawsort.outputs.exports.naming import flat_names, folder_names
from flawsort.outputs.exports.splitting import Sides, choose_sides, copy_keys
from flawsort.outputs.exports.writing import Link, place_image, write_text

TRAIN, VALIDATION = "train", "val"
DATA, README, PLACEHOLDER = "data.yaml", "README.md", "no-images.txt"

# Ultralytics ignores files with other suffixes.
_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
_SUFFIX_OF = {
    "BMP": ".bmp", "JPEG": ".jpg", "MPO": ".jpg", "PNG": ".png", "TIFF": ".tif", "WEBP": ".webp",
}  # fmt: skip
_SPLIT_GUIDE = """
About one image in five is for validation. What belongs together is on the same side: copies of an
image, photos that nearly repeat another one, and the images of a lot if the export was made with
lots. Otherwise the choice depends on the content of the image, and an image keeps its side when
others are added. Images of unsure groups are left out.
"""
_DETECT_GUIDE = f"""# Train a detector

    yolo detect train data={DATA} model=yolo11n.pt

Each group with the role flaw is a class. Each region that shows such a group is a box. Images
without a flaw have empty label files.
"""
_CLASSIFY_GUIDE = f"""# Train a classifier

    yolo classify train data=. model=yolo11n-cls.pt

Each group is a class, including normal groups. Each image is in the folder of its own group. A
group with a single image has it in {TRAIN}/, and only `{PLACEHOLDER}` in {VALIDATION}/.
"""


def write_detect(content: Content, folder: Path, link: Link) -> list[SetAside]:
    """data.yaml, images/{train,val} and labels/{train,val}, a line `class cx cy w h` for each box,
    in shares of the image's width and height."""
    classes = [group.id for group in content.groups if group.role == "flaw"]
    if not classes:
        raise InputError(
            "No group has the role flaw, so there is nothing to detect. Give a group that role in "
            "flawsort review, or export yolo-classify."
        )
    pictures, left_out = _pictures(content)
    if any(region.group == UNKNOWN for picture in pictures for region in picture.regions):
        classes.append(UNKNOWN)
    names = _file_names(pictures)
    sides = choose_sides(content, pictures)
    for picture, name in zip(pictures, names, strict=True):
        part = VALIDATION if picture.row in sides.held_out else TRAIN
        place_image(picture.source, folder / "images" / part / name, link)
        label = f"{PurePosixPath(name).stem}.txt"
        write_text(folder / "labels" / part / label, _boxes(picture, classes))
    write_text(folder / DATA, _data([content.titles[group] for group in classes]))
    write_text(folder / README, _DETECT_GUIDE + _split_guide(content, pictures, sides))
    return left_out


def write_classify(content: Content, folder: Path, link: Link) -> list[SetAside]:
    """train/<group>/ and val/<group>/ with the images."""
    pictures, left_out = _pictures(content)
    sides = choose_sides(content, pictures)
    group_of = {picture.row: int(content.labelling.labels[picture.row]) for picture in pictures}
    groups = sorted(set(group_of.values()))
    folder_of = dict(
        zip(groups, folder_names([content.titles[group] for group in groups]), strict=True)
    )
    for picture, name in zip(pictures, _file_names(pictures), strict=True):
        part = VALIDATION if picture.row in sides.held_out else TRAIN
        place_image(picture.source, folder / part / folder_of[group_of[picture.row]] / name, link)
    # Ultralytics numbers classes by the folders of each side, so both sides need all folders.
    for part in (TRAIN, VALIDATION):
        for named in folder_of.values():
            if not (folder / part / named).is_dir():
                write_text(
                    folder / part / named / PLACEHOLDER, "Every image is on the other side.\n"
                )
    write_text(folder / README, _CLASSIFY_GUIDE + _split_guide(content, pictures, sides))
    return left_out


def _pictures(content: Content) -> tuple[list[Picture], list[SetAside]]:
    """The images to train with, and those left out: missing, unsure, or in a format that
    Ultralytics does not read."""
    found, left_out = find_pictures(content)
    pictures = []
    for picture in found:
        reason = ""
        if content.role(picture.row) == "unsure":
            reason = "is in an unsure group"
        elif not _suffix(picture):
            reason = "is in a format that YOLO does not read"
        if reason:
            left_out.append(SetAside(picture.name, reason))
        else:
            pictures.append(picture)
    if len(set(copy_keys(content, pictures))) < 2:
        raise InputError(
            "YOLO needs at least two different images, one to train with and one for validation. "
            f"Got {len(pictures)} of {len(content.run.table['name'])}"
            + (f"; {left_out[0].name} {left_out[0].reason}." if left_out else ".")
        )
    return pictures, left_out


def _file_names(pictures: Sequence[Picture]) -> list[str]:
    """A file name for each image. Stems are distinct, because a label file has the stem of its
    image."""
    stems, suffixes = [], []
    for picture, name in zip(pictures, flat_names([one.name for one in pictures]), strict=True):
        suffixes.append(_suffix(picture))
        stems.append(name[: -len(suffixes[-1])] if name.endswith(suffixes[-1]) else name)
    return [stem + suffix for stem, suffix in zip(folder_names(stems), suffixes, strict=True)]


def _suffix(picture: Picture) -> str:
    """The suffix from the name, or else from the content; "" for formats YOLO does not read."""
    suffix = PurePosixPath(picture.name).suffix
    if suffix.lower() in _SUFFIXES:
        return suffix
    with Image.open(io.BytesIO(picture.source.read_bytes())) as image:
        return _SUFFIX_OF.get(image.format or "", "")


def _boxes(picture: Picture, classes: Sequence[int]) -> str:
    lines = []
    width, height = picture.size
    for region in picture.regions:
        if region.group not in classes:
            continue
        left, top, wide, high = picture.cut(region).box
        values = ((left + wide / 2) / width, (top + high / 2) / height, wide / width, high / height)
        numbers = " ".join(f"{value:.6f}" for value in values)
        lines.append(f"{classes.index(region.group)} {numbers}\n")
    return "".join(lines)


def _split_guide(content: Content, pictures: Sequence[Picture], sides: Sides) -> str:
    """How the images were split, and what is to be known about it."""
    n = len(sides.held_out)
    lines = [f"This export: {len(pictures) - n:,} images for training, {n:,} for validation."]
    if sides.repeats:
        lines.append(f"{pluralise(sides.repeats, 'photo')} nearly repeat another one.")
    if sides.one_sided:
        titles = ", ".join(content.titles[group] for group in sides.one_sided)
        lines.append(f"Nothing is for validation of: {titles}. All their images belong together.")
    return _SPLIT_GUIDE + "\n" + "\n".join(lines) + "\n"


def _data(names: Iterable[str]) -> str:
    """data.yaml without `path`, so that YOLO looks for the folders beside it, even after a move."""
    lines = [f"train: images/{TRAIN}", f"val: images/{VALIDATION}", "names:"]
    lines += [f"  {number}: {_quoted(name)}" for number, name in enumerate(names)]
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    """A text as a YAML string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    plain = (one if one.isprintable() else f"\\U{ord(one):08x}" for one in escaped)
    return f'"{"".join(plain)}"'
