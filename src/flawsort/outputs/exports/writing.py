"""Write an export beside its output path, and move it there when it is complete."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from flawsort._version import __version__
from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import RemoteFile, SetAside
from flawsort.core.storage import new_file, new_folder, recover
from flawsort.core.text import path_of, printable
from flawsort.outputs.exports.content import Picture
from flawsort.runs.run import Run

Link: TypeAlias = Literal["copy", "link", "hardlink"]

MARKER = ".flawsort-export.json"
"""Marks a folder as an export: no other folder is ever replaced."""

LEFT_OUT = "left-out.txt"
# An output with such a suffix is meant to be a file.
FILE_SUFFIXES = (".csv", ".parquet", ".json", ".jsonl", ".xml", ".html", ".pdf", ".zip")


@contextmanager
def writing_folder(output: Path, format: str, run: Run, *, overwrite: bool) -> Iterator[Path]:
    """A new folder to write to. It becomes `output` at the end, and is removed on failure."""
    if output.suffix.lower() in FILE_SUFFIXES and not output.is_dir():
        raise OptionError(
            f"{format} writes a folder with several files. Got '{printable(output)}'. "
            f"Name a folder: '{printable(output.with_suffix(''))}'."
        )
    recover(output)
    _check_folder(output, run, overwrite)
    _make_parents(output)
    # Somebody may have written there meanwhile. An export can be written again, so nobody waits for
    # the disk.
    checked = partial(_check_folder, output, run, overwrite)
    with (
        _plain_errors(output),
        new_folder(output, durable=False, before_publish=checked) as folder,
    ):
        write_json(folder / MARKER, {"export": format, "flawsort": __version__})
        yield folder


@contextmanager
def writing_file(output: Path, suffix: str, *, overwrite: bool) -> Iterator[Path]:
    """A new file to write. It becomes `output` at the end, and is removed on failure."""
    if output.suffix.lower() != suffix:
        raise OptionError(
            f"The output must be a {suffix} file. Got '{printable(output)}'. "
            f"Name it '{printable(output.with_suffix(suffix))}'."
        )
    if output.is_dir():
        raise OptionError(f"The output '{printable(output)}' is a folder. Name a {suffix} file.")
    checked = partial(_check_file, output, overwrite)
    checked()
    _make_parents(output)
    with _plain_errors(output), new_file(output, before_publish=checked) as file:
        yield file


def place_images(pictures: Sequence[Picture], folder: Path, link: Link) -> None:
    """Copy or link the images into a folder, each at its `file`."""
    for picture in pictures:
        place_image(picture.source, folder / picture.file, link)


def place_image(source: Path | RemoteFile, target: Path, link: Link) -> None:
    """Copy, link or hard-link a file. A file behind a URL is always fetched and copied."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if isinstance(source, RemoteFile):
            target.write_bytes(source.read_bytes())
        elif link == "copy":
            _copy(source, target)
        elif link == "link":
            target.symlink_to(source.absolute())
        else:
            os.link(source.resolve(), target)
    except OSError as error:
        how = "hard-linked" if link == "hardlink" else "linked" if link == "link" else "copied"
        advice = "" if link == "copy" else " Copy images instead."
        raise OptionError(
            f"'{printable(source)}' cannot be {how}: {error.strerror or error}.{advice}"
        ) from error


def _copy(source: Path, target: Path) -> None:
    """The content and its time, but not that it is read-only or locked: nobody could then remove
    the export on Windows and macOS."""
    shutil.copyfile(source, target)
    found = source.stat()
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def write_json(path: Path, content: Any, *, indent: int | None = 2) -> None:
    """Write JSON that ends with a line break."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(
        content, indent=indent, separators=separators, ensure_ascii=False, allow_nan=False
    )
    write_text(path, text + "\n")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text with \\n line breaks; creates the parent folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())


def write_left_out(folder: Path, left_out: Sequence[SetAside]) -> None:
    """Write the list of images that are not in an export, if there are any."""
    if left_out:
        lines = [f"{entry.name}\t{entry.reason}" for entry in left_out]
        write_text(folder / LEFT_OUT, "\n".join([*lines, ""]))


def _check_file(output: Path, overwrite: bool) -> None:
    if output.exists() and not overwrite:
        raise OptionError(
            f"is needed to replace '{printable(output)}', which already exists. Or name another "
            "file.",
            parameter="overwrite",
        )


def _check_folder(output: Path, run: Run, overwrite: bool) -> None:
    if output.exists() and not output.is_dir():
        raise OptionError(f"The output '{printable(output)}' is a file. Name a folder.")
    if os.path.ismount(output):
        raise OptionError(
            f"The output folder '{printable(output)}' is a mount point, which cannot be replaced. "
            f"Name a folder inside it: '{printable(output / 'export')}'."
        )
    if not output.is_dir() or not any(output.iterdir()):
        return
    if not (output / MARKER).is_file():
        raise OptionError(
            f"The output folder '{printable(output)}' holds files that are not a flawsort export. "
            "Name a folder that is empty or does not exist yet."
        )
    if not overwrite:
        raise OptionError(
            f"is needed to replace the export that is in '{printable(output)}' already. Or name "
            "another folder.",
            parameter="overwrite",
        )
    inside = _below(output, run.table["path"])
    if inside:
        raise InputError(
            f"The output folder '{printable(output)}' holds {len(inside)} of the images of "
            f"this run, such as '{inside[0]}', which would be lost. Name another folder."
        )


def _below(folder: Path, paths: Sequence[str]) -> list[str]:
    """The paths that lead into a folder. Folders are compared, not their names: macOS and Windows
    do not tell Parts/ from parts/."""
    known: dict[Path, bool] = {}
    return [path for path in paths if _is_below(folder, path_of(path), known)]


def _is_below(folder: Path, path: Path, known: dict[Path, bool]) -> bool:
    """known: the answer for folders that were asked for before."""
    above = Path(os.path.realpath(path)).parent
    if above not in known:
        known[above] = any(_is_same(folder, one) for one in (above, *above.parents))
    return known[above]


def _is_same(one: Path, other: Path) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def _make_parents(output: Path) -> None:
    above = output.resolve().parent
    try:
        above.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"Cannot write to '{printable(above)}': {error.strerror or error}. "
            "Choose another place."
        ) from error


@contextmanager
def _plain_errors(output: Path) -> Iterator[None]:
    """Turn a full disk or a missing permission into a one-line error."""
    try:
        yield
    except OSError as error:
        raise OptionError(
            f"Cannot write '{printable(output)}': {error.strerror or error}. Choose another place."
        ) from error
