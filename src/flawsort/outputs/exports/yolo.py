"""YOLO datasets for Ultralytics: boxes to train a detector, or folders for a classifier."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from PIL import Image

from flawsort.core.errors import InputError
from flawsort.core.records import SetAside
from flawsort.outputs.exports.content import Content, Picture, find_pictures
from flawsort.outputs.exports.naming import flat_names, folder_names
from flawsort.outputs.exports.writing import Link, place_image, write_text

TRAIN, VALIDATION = "train", "val"
VALIDATION_SHARE = 0.2
DATA, README, PLACEHOLDER = "data.yaml", "README.md", "no-images.txt"

# Ultralytics ignores files with other suffixes.
_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
_SUFFIX_OF = {
    "BMP": ".bmp", "JPEG": ".jpg", "MPO": ".jpg", "PNG": ".png", "TIFF": ".tif", "WEBP": ".webp",
}  # fmt: skip
_SPLIT_GUIDE = """
About one image in five is for validation. The choice depends on the content of the image: copies of
an image are on the same side, and an image keeps its side when others are added, unless its group
would have no image on the other side. Images of unsure groups are left out.
"""
_DETECT_GUIDE = f"""# Train a detector

    yolo detect train data={DATA} model=yolo11n.pt

Each group with the role flaw is a class. Each region that resembles such a group is a box; regions
that resemble no group are left out. Images without a flaw have empty label files.
{_SPLIT_GUIDE}"""
_CLASSIFY_GUIDE = f"""# Train a classifier

    yolo classify train data=. model=yolo11n-cls.pt

Each group is a class, including normal groups. Each image is in the folder of its own group. A
group with a single image has it in {TRAIN}/, and only `{PLACEHOLDER}` in {VALIDATION}/.
{_SPLIT_GUIDE}"""


def write_detect(content: Content, folder: Path, link: Link) -> list[SetAside]:
    """data.yaml, images/{train,val} and labels/{train,val}, a line `class cx cy w h` for each box,
    in shares of the image's width and height."""
    flaws = [group.id for group in content.groups if group.role == "flaw"]
    if not flaws:
        raise InputError(
            "No group has the role flaw, so there is nothing to detect. Give a group that role in "
            "flawsort review, or export yolo-classify."
        )
    pictures, left_out = _pictures(content)
    names = _file_names(pictures)
    held_out = _held_out(content, pictures)
    for picture, name in zip(pictures, names, strict=True):
        part = VALIDATION if picture.row in held_out else TRAIN
        place_image(picture.source, folder / "images" / part / name, link)
        label = f"{PurePosixPath(name).stem}.txt"
        write_text(folder / "labels" / part / label, _boxes(picture, flaws))
    write_text(folder / DATA, _data([content.titles[group] for group in flaws]))
    write_text(folder / README, _DETECT_GUIDE)
    return left_out


def write_classify(content: Content, folder: Path, link: Link) -> list[SetAside]:
    """train/<group>/ and val/<group>/ with the images."""
    pictures, left_out = _pictures(content)
    held_out = _held_out(content, pictures)
    group_of = {picture.row: int(content.labelling.labels[picture.row]) for picture in pictures}
    groups = sorted(set(group_of.values()))
    folder_of = dict(
        zip(groups, folder_names([content.titles[group] for group in groups]), strict=True)
    )
    for picture, name in zip(pictures, _file_names(pictures), strict=True):
        part = VALIDATION if picture.row in held_out else TRAIN
        place_image(picture.source, folder / part / folder_of[group_of[picture.row]] / name, link)
    # Ultralytics numbers classes by the folders of each side, so both sides need all folders.
    for part in (TRAIN, VALIDATION):
        for named in folder_of.values():
            if not (folder / part / named).is_dir():
                write_text(
                    folder / part / named / PLACEHOLDER, "Every image is on the other side.\n"
                )
    write_text(folder / README, _CLASSIFY_GUIDE)
    return left_out


def split(keys: Sequence[str], groups: Sequence[int]) -> set[str]:
    """The keys of the images for validation, about VALIDATION_SHARE of them.

    keys: (n_images,), hexadecimal and evenly spread, equal for copies of an image. groups:
    (n_images,). A group has images on both sides if two of its images are not copies; otherwise its
    image is for training. If copies are in several groups, one of these may lack a side.
    """
    held_out = {key for key in keys if int(key[:8], 16) < VALIDATION_SHARE * 2**32}
    members = {group: set[str]() for group in groups}
    for key, group in zip(keys, groups, strict=True):
        members[group].add(key)
    for own in (*sorted(members.values(), key=lambda own: (len(own), min(own))), set(keys)):
        if own <= held_out:
            held_out.remove(max(own))
        elif len(own) > 1 and not own & held_out:
            held_out.add(min(own))
    return held_out


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
    if len(set(_keys(content, pictures).values())) < 2:
        raise InputError(
            "YOLO needs at least two different images, one to train with and one for validation. "
            f"Got {len(pictures)} of {len(content.run.table['name'])}"
            + (f"; {left_out[0].name} {left_out[0].reason}." if left_out else ".")
        )
    return pictures, left_out


def _held_out(content: Content, pictures: Sequence[Picture]) -> set[int]:
    """The rows of the images for validation."""
    keys = _keys(content, pictures)
    labels = content.labelling.labels
    chosen = split([*keys.values()], [int(labels[row]) for row in keys])
    return {row for row, key in keys.items() if key in chosen}


def _keys(content: Content, pictures: Sequence[Picture]) -> dict[int, str]:
    """For each row, the smallest digest among its copies: files with the same bytes, and files with
    bit-identical embeddings, such as the same image saved in another format."""
    digests, embeddings = content.run.table["sha256"], content.run.embeddings
    vector_of: dict[str, bytes] = {}
    for picture in pictures:
        vector_of.setdefault(digests[picture.row], embeddings[picture.row].tobytes())
    smallest: dict[bytes, str] = {}
    for digest, vector in vector_of.items():
        smallest[vector] = min(digest, smallest.get(vector, digest))
    return {one.row: smallest[vector_of[digests[one.row]]] for one in pictures}


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
