"""The files beside an ONNX file that hold its weights.

A large model is a small file with the graph and further files with the numbers, in the same folder.
The graph names them; they belong to the model as much as the graph does. It is read here as
protobuf, with the numbers of onnx.proto, since the package onnx is not installed with flawsort.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

from flawsort.core.errors import BackboneError
from flawsort.core.storage import sha256

# For each kind of message the fields that lead to tensors, and the kinds of message there.
_MODEL = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 10: "tensor", 6: "graph", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "entry"},
}
# Of an entry of a tensor: its name and its value. The path of a file has this name.
_KEY, _VALUE = 1, 2
_LOCATION = b"location"
_DEEPEST = 64


class _MalformedError(ValueError):
    """The content is not protobuf."""


def external_files(content: bytes, path: Path) -> dict[str, Path]:
    """The files that a model names, by their names in it. path: of the model. BackboneError for
    names that lead out of its folder, and for files that are not there."""
    try:
        names = sorted(set(_locations(memoryview(content), "model", 0)))
    except _MalformedError:  # onnxruntime says what is wrong with it
        return {}
    found = {name: path.parent / _inside(name, path) for name in names}
    for name, file in found.items():
        if not file.is_file():
            raise BackboneError(
                f"The backbone '{path}' keeps weights in '{name}', which is not in its folder. Put "
                "the file there."
            )
    return found


def digest_with(digest: str, files: dict[str, Path]) -> str:
    """The SHA-256 of a model and of the files that it names. digest: of the model alone."""
    if not files:
        return digest
    total = hashlib.sha256(digest.encode())
    for name, file in files.items():
        try:
            total.update(f"\0{name}\0{sha256(file)}".encode())
        except OSError as error:
            raise BackboneError(
                f"Cannot read the backbone file '{file}': {error.strerror or error}."
            ) from error
    return total.hexdigest()


def _inside(name: str, path: Path) -> PurePosixPath:
    """The name as a path within the folder of the model."""
    inside = PurePosixPath(name)
    windows = PureWindowsPath(name)
    if inside.is_absolute() or windows.drive or windows.root or ".." in windows.parts or not name:
        raise BackboneError(
            f"The backbone '{path}' must keep its weights in its own folder. Got '{name}'."
        )
    return inside


def _locations(message: memoryview, kind: str, depth: int) -> Iterator[str]:
    """The files that the tensors of a message name."""
    if depth > _DEEPEST:
        raise _MalformedError
    if kind == "entry":
        fields = {number: bytes(value) for number, value in _fields(message)}
        if fields.get(_KEY) == _LOCATION:
            yield fields.get(_VALUE, b"").decode("utf-8", "surrogateescape")
        return
    for number, value in _fields(message):
        inner = _MODEL[kind].get(number)
        if inner is not None:
            yield from _locations(value, inner, depth + 1)


def _fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The numbers and contents of the fields of a message that have a length."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, wire = key >> 3, key & 7
        if wire == 2:
            length, place = _varint(message, place)
            if place + length > len(message):
                raise _MalformedError
            yield number, message[place : place + length]
            place += length
        elif wire == 0:
            _, place = _varint(message, place)
        elif wire in (1, 5):
            place += 8 if wire == 1 else 4
        else:
            raise _MalformedError


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """A number of variable length, and the place after it."""
    value = shift = 0
    while True:
        if place >= len(message) or shift > 63:
            raise _MalformedError
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
