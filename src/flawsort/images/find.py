"""Find image files, give them readable names, and hash their content."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError
from flawsort.core.records import ImageSet, RemoteFile, SetAside, Source
from flawsort.core.remote import files_below, is_url, kind_of
from flawsort.core.text import printable
from flawsort.core.threads import n_threads
from flawsort.images.formats import kinds_of_files, readable_suffixes, skipped_line
from flawsort.images.headers import unreadable

# The fewest threads that hash files. On a fast disk hashing uses all processors; on a slow one it
# waits for the disk, and this many threads are enough even on few processors.
_HASH_THREADS = 4
# The same for object stores, which answer more slowly.
_FETCH_THREADS = 16
# In bytes. Reading a larger file takes long, so its header is looked at before.
LOOKED_AT_FIRST = 2**26
_GLOB_CHARACTERS = "*?["
_ANY_DEPTH = 1_000_000
_CLOSED = "folder cannot be opened: "


def find_images(sources: str | Path | Sequence[str | Path], *, glob: str | None = None) -> ImageSet:
    """The images of one or more sources, sorted by name, each file once, with its SHA-256.

    A source is a folder (searched with its sub-folders), one image file, a glob pattern
    ("parts/**/*.png"), or a .txt list with one path per line, absolute or relative to the list's
    folder. Blank lines and lines that start with # are skipped. Folders, files, patterns and lines
    of a list may be URLs (s3://bucket/parts), which are read with fsspec. `glob` selects files from
    folders: it is matched with the file's name or, if it has a slash, with the path below the
    folder. Hidden files and folders (leading dot) are skipped. Folders and patterns give only files
    with the suffixes of images that can be read here, and count the others by kind; a file given by
    its own path, or in a list, may have any suffix. A file that cannot be used is set aside with a
    reason.

    Names: for a folder, the path below it; for a pattern, the path below its fixed part; for a
    list, the path as written, or below the common folder if all paths are absolute; for a single
    file, its name. If files of two sources get the same name, all names of these sources are
    prefixed with the name of the source's folder; if that is not enough, they become full paths.
    """
    given = [sources] if isinstance(sources, str | Path) else list(sources)
    if not given:
        raise InputError("No source given. Name a folder, an image, a glob pattern or a .txt list.")
    problems: list[SetAside] = []
    found = _distinct([_open_source(source, glob, problems) for source in given])
    names = _names(found)
    files = [entry for origin in found for entry in origin.files]
    order = sorted(range(len(files)), key=lambda i: names[i])
    remote = any(isinstance(entry.path, RemoteFile) for entry in files)
    least = _FETCH_THREADS if remote else _HASH_THREADS
    with ThreadPoolExecutor(max(n_threads(), least)) as pool:
        hashed = list(pool.map(digest_of, [files[i].path for i in order]))
    kept = [(i, digest) for i, (digest, reason) in zip(order, hashed, strict=True) if not reason]
    aside = [
        SetAside(names[i], reason) for i, (_, reason) in zip(order, hashed, strict=True) if reason
    ]
    return ImageSet(
        tuple(names[i] for i, _ in kept),
        tuple(files[i].path for i, _ in kept),
        tuple(digest for _, digest in kept),
        tuple(problems + aside),
        kinds_of_files(name for origin in found for name in origin.skipped),
    )


def array_images(arrays: Sequence[NDArray[Any]] | NDArray[Any]) -> ImageSet:
    """Images that are already in memory, named image-00000, image-00001, ...

    arrays: (n, height, width[, 1, 3 or 4]), or a sequence of (height, width[, 1, 3 or 4]);
    uint8, uint16, bool, or floats between 0 and 1. The digest covers type, shape and values.
    """
    if isinstance(arrays, np.ndarray) and arrays.ndim not in (3, 4):
        raise InputError(
            "An array of images must have the shape (n, height, width) or (n, height, width, "
            f"channels). Got {arrays.shape}. For one image pass [image]."
        )
    checked: list[Source] = [_checked_array(i, array) for i, array in enumerate(arrays)]
    if not checked:
        raise InputError("No images: the sequence of arrays is empty.")
    digests = tuple(_array_digest(array) for array in checked if isinstance(array, np.ndarray))
    return ImageSet(tuple(f"image-{i:05d}" for i in range(len(checked))), tuple(checked), digests)


@dataclass(frozen=True)
class _File:
    """A file of a source: its path, and its name within the source."""

    path: Path | RemoteFile
    name: str


@dataclass(frozen=True)
class _Origin:
    """A source: the folder (or its URL) that names are relative to, its files, and the names of
    files that are not images."""

    folder: Path | str
    files: tuple[_File, ...]
    skipped: tuple[str, ...] = ()

    def name(self, entry: _File, level: int) -> str:
        """The name of a file: short (0), with the source's folder (1), the full path (2)."""
        above = Path(os.path.abspath(self.folder)).name
        return printable((entry.name, f"{above}/{entry.name}", printable(entry.path))[level])


def _open_source(source: str | Path, glob: str | None, problems: list[SetAside]) -> _Origin:
    if isinstance(source, str) and is_url(source):
        return _from_url(source.rstrip("/"), glob)
    if source == "":  # as a path, it would be the current folder with all that is below it
        raise InputError("A path is empty. Name a folder; '.' is the current one.")
    path = Path(source)
    if os.path.isdir(path):
        return _from_folder(path, glob, problems)
    if os.path.lexists(path):
        if path.suffix.lower() == ".txt":
            return _from_list(path)
        return _Origin(path.parent, (_File(path, path.name),))
    if any(character in str(source) for character in _GLOB_CHARACTERS):
        return _from_pattern(path, problems)
    raise InputError(
        f"'{printable(path)}' does not exist. Check the path; a source is a folder, an image, "
        "a glob pattern such as 'parts/**/*.png', or a .txt list of paths."
    )


def _from_url(url: str, glob: str | None) -> _Origin:
    """The files of a URL, which is a folder, a file or a pattern."""
    kind = kind_of(url)
    folder, _, name = url.rpartition("/")
    if kind == "file":
        return _Origin(folder, (_File(RemoteFile(url), name),))
    folder = url
    pattern: tuple[str, ...] = ()
    if kind is None:
        pieces = url.split("/")
        marked = [i for i, piece in enumerate(pieces) if any(c in piece for c in _GLOB_CHARACTERS)]
        if not marked:
            raise InputError(f"'{printable(url)}' does not exist. Check the URL.")
        folder, pattern = "/".join(pieces[: marked[0]]), tuple(pieces[marked[0] :])
    depth = None if not pattern or "**" in pattern else len(pattern)
    named = [
        name
        for name in files_below(folder, depth)
        if (not pattern or _matches(tuple(name.split("/")), pattern))
        and (pattern or _narrowed(name, glob))
    ]
    images, skipped = _images_and_others(named)
    found = tuple(_File(RemoteFile(f"{folder}/{name}"), name) for name in images)
    if not found:
        matching = "" if pattern or glob is None else f" whose name matches '{glob}'"
        raise InputError(
            f"No images {'match' if pattern else 'under'} '{printable(url)}'{matching}. "
            f"{_looked_for(skipped)} Check the URL."
        )
    return _Origin(folder, found, skipped)


def _images_and_others(names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of images, and those of other files."""
    listed, suffixes = list(names), readable_suffixes()
    images = tuple(name for name in listed if name.lower().endswith(suffixes))
    return images, tuple(name for name in listed if not name.lower().endswith(suffixes))


def _looked_for(skipped: tuple[str, ...], where: str = "") -> str:
    """What was looked for where no image was found, and what was found instead."""
    line = skipped_line(kinds_of_files(skipped))
    return f"Looked{where} for {', '.join(readable_suffixes())}.{f' {line}' if line else ''}"


def _narrowed(name: str, glob: str | None) -> bool:
    return glob is None or fnmatchcase(name if "/" in glob else name.rpartition("/")[2], glob)


def _from_folder(folder: Path, glob: str | None, problems: list[SetAside]) -> _Origin:
    before = len(problems)
    images, skipped = names_below(folder, glob, problems)
    files = tuple(_File(folder / name, name) for name in images)
    if not files:
        closed = _closed(folder, problems[before:])
        matching = "" if glob is None else f" whose name matches '{glob}'"
        # Mention the pattern only if one was given.
        what = "path" if glob is None else "path and the pattern"
        raise InputError(
            f"No images under '{printable(folder)}/'{matching}. {_looked_for(skipped)}{closed} "
            f"Check the {what}."
        )
    return _Origin(folder, files, skipped)


def names_below(
    folder: Path, glob: str | None, problems: list[SetAside]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The images below a folder, and its other files, as relative POSIX paths. problems: gets the
    folders that cannot be opened."""
    names = _walk(folder, _ANY_DEPTH, problems)
    return _images_and_others(name for name in names if _narrowed(name, glob))


def _closed(folder: Path, problems: list[SetAside]) -> str:
    """A sentence about folders that could not be opened, for when no image was found in the others.
    Raises InputError if the source itself could not be opened."""
    if not problems:
        return ""
    first = problems[0]
    reason = first.reason.removeprefix(_CLOSED)
    if first.name == ".":
        raise InputError(
            f"'{printable(folder)}' cannot be opened: {reason}. Check its permissions."
        )
    more = f", nor can {len(problems) - 1} more" if len(problems) > 1 else ""
    return f" '{printable(folder / first.name)}' cannot be opened: {reason}{more}."


def _from_pattern(pattern: Path, problems: list[SetAside]) -> _Origin:
    parts = pattern.parts
    fixed = next(i for i, part in enumerate(parts) if any(c in part for c in _GLOB_CHARACTERS))
    folder, rest = Path(*parts[:fixed]), parts[fixed:]
    if not folder.is_dir():
        raise InputError(
            f"No images match '{printable(pattern)}': '{printable(folder)}' is not a folder. "
            "Check the path."
        )
    depth = _ANY_DEPTH if "**" in rest else len(rest)
    before = len(problems)
    images, skipped = _images_and_others(
        name for name in _walk(folder, depth, problems) if _matches(tuple(name.split("/")), rest)
    )
    files = tuple(_File(folder / name, name) for name in images)
    if not files:
        closed = _closed(folder, problems[before:])
        looked = _looked_for(skipped, f" below '{printable(folder)}'")
        raise InputError(
            f"No images match '{printable(pattern)}'. {looked}{closed} Check the pattern; ** "
            "matches any number of folders."
        )
    return _Origin(folder, files, skipped)


def _from_list(path: Path) -> _Origin:
    try:
        text = path.read_bytes().decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise InputError(
            f"The list '{printable(path)}' cannot be read: {error.strerror}. "
            "Check its permissions, or name the images another way."
        ) from error
    lines = [line.strip() for line in text.splitlines()]
    named = [line for line in lines if line and not line.startswith("#")]
    if not named:
        raise InputError(
            f"The list '{printable(path)}' names no images. Write one path per line, absolute or "
            "relative to the list's folder."
        )
    if all(is_url(line) or Path(line).is_absolute() for line in named):
        try:
            return _below_common_folder(named)
        except ValueError:  # on several drives or in several stores: there is no common folder
            pass
    return _Origin(path.parent, tuple(_listed(line, path.parent) for line in named))


def _listed(line: str, folder: Path) -> _File:
    """The file of a line of a list, with the name as written there."""
    if is_url(line):
        return _File(RemoteFile(line), line)
    return _File(folder / line, Path(line).as_posix())


def _below_common_folder(lines: list[str]) -> _Origin:
    remote = is_url(lines[0])
    if any(is_url(line) != remote for line in lines):
        raise ValueError("paths and URLs have no common folder")
    if remote:
        levels = zip(*(line.split("/")[:-1] for line in lines), strict=False)
        shared = [level[0] for level in takewhile(lambda level: len(set(level)) == 1, levels)]
        if len(shared) < 3:  # the protocol at most
            raise ValueError("no common folder")
        folder = "/".join(shared)
        names = [line[len(folder) + 1 :] for line in lines]
        files = [_File(RemoteFile(line), name) for line, name in zip(lines, names, strict=True)]
        return _Origin(folder, tuple(files))
    paths = [Path(line) for line in lines]
    common = Path(os.path.commonpath([path.parent for path in paths]))
    return _Origin(
        common, tuple(_File(path, path.relative_to(common).as_posix()) for path in paths)
    )


def _matches(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        if len(pattern) == 1:
            return bool(parts)
        return any(_matches(parts[i:], pattern[1:]) for i in range(len(parts)))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def _walk(folder: Path, depth: int, problems: list[SetAside]) -> Iterator[str]:
    """The files below `folder`, as relative POSIX paths, at most `depth` levels deep."""

    def cannot_open(error: OSError) -> None:
        where = os.path.relpath(os.fsdecode(error.filename), folder)
        problems.append(SetAside(printable(Path(where)), f"{_CLOSED}{error.strerror}"))

    seen = {os.path.realpath(folder)}
    for place, folders, names in os.walk(folder, followlinks=True, onerror=cannot_open):
        below = Path(place).relative_to(folder)
        # Skip folders already visited: a link back to one would never end.
        fresh = []
        for name in sorted(folders):
            real = os.path.realpath(os.path.join(place, name))
            if not name.startswith(".") and len(below.parts) + 1 < depth and real not in seen:
                seen.add(real)
                fresh.append(name)
        folders[:] = fresh
        for name in sorted(names):
            if not name.startswith("."):
                yield (below / name).as_posix()


def _distinct(origins: list[_Origin]) -> list[_Origin]:
    """The same sources without files that an earlier source already gave."""
    seen: set[str] = set()
    kept = []
    for origin in origins:
        files = []
        for entry in origin.files:
            real = _resolved(entry.path)
            if real not in seen:
                seen.add(real)
                files.append(entry)
        kept.append(_Origin(origin.folder, tuple(files), origin.skipped))
    return kept


def _resolved(path: Path | RemoteFile) -> str:
    if isinstance(path, RemoteFile):
        return path.url
    try:
        return os.path.realpath(path)
    except ValueError:  # a zero byte in a list: hashing will report that there is no such file
        return str(path)


def _names(origins: list[_Origin]) -> list[str]:
    """A unique name for each file, in the order of the sources and their files."""
    levels = [0] * len(origins)
    while True:
        named = [
            [origin.name(entry, level) for entry in origin.files]
            for origin, level in zip(origins, levels, strict=True)
        ]
        count = Counter(name for names in named for name in names)
        clashing = [
            i for i, names in enumerate(named) if levels[i] < 2 and any(count[n] > 1 for n in names)
        ]
        if not clashing:
            break
        for i in clashing:
            levels[i] += 1
    # The only equal names left are those of paths that differ in undecodable bytes.
    names: dict[str, None] = {}
    for name in (name for group in named for name in group):
        unique, tries = name, 1
        while unique in names or (tries > 1 and unique in count):
            tries += 1
            unique = f"{name} ({tries})"
        names[unique] = None
    return list(names)


def digest_of(path: Path | RemoteFile) -> tuple[str, str]:
    """The SHA-256 of a file and "", or "" and the reason why it cannot be read."""
    if isinstance(path, RemoteFile):
        return _remote_digest(path)
    try:
        # Check the type before opening: opening a pipe would wait for ever.
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return "", "is a folder" if stat.S_ISDIR(status.st_mode) else "is not a regular file"
        if status.st_size == 0:
            return "", "is empty (0 bytes)"
        if status.st_size > LOOKED_AT_FIRST and (reason := unreadable(path)):
            return "", reason
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest(), ""
    except FileNotFoundError:
        return "", "is a broken link" if path.is_symlink() else "does not exist"
    except PermissionError:
        return "", "cannot be read: permission denied"
    except (OSError, ValueError) as error:
        if path.is_symlink():
            return "", "is a broken link"
        return "", f"cannot be read: {getattr(error, 'strerror', None) or error}"


def _remote_digest(file: RemoteFile) -> tuple[str, str]:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return "", "does not exist"
    except OSError as error:
        return "", f"cannot be read: {error.strerror or error}"
    return (hashlib.sha256(content).hexdigest(), "") if content else ("", "is empty (0 bytes)")


def _checked_array(index: int, array: object) -> NDArray[Any]:
    accepted = (
        "(height, width[, 1, 3 or 4]), no side empty, of uint8, uint16, bool, or floats "
        "between 0 and 1"
    )
    if not isinstance(array, np.ndarray):
        raise InputError(
            f"Image {index} must be an array {accepted}. Got {type(array).__name__}. "
            "To use files, pass their paths."
        )
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    shaped = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))
    typed = array.dtype in (np.uint8, np.uint16, np.bool_) or array.dtype.kind == "f"
    if not shaped or not typed or 0 in array.shape:
        raise InputError(
            f"Image {index} must be {accepted}. Got {array.dtype} {array.shape}. "
            "Convert it, for example with .astype('uint8')."
        )
    if array.dtype.kind == "f" and not bool(np.all((array >= 0) & (array <= 1))):
        raise InputError(
            f"Image {index} has floats, which must be between 0 and 1. Got "
            f"{np.min(array):g} to {np.max(array):g}. Scale it, or convert it to uint8 or uint16."
        )
    return array


def _array_digest(array: NDArray[Any]) -> str:
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    digest = hashlib.sha256(f"{little.dtype.str} {array.shape} ".encode())
    digest.update(little.data)
    return digest.hexdigest()
