"""Images outside the run that teach, as edits hold them: a name, a SHA-256 and an embedding.

The embedding is in the edit itself, in half precision, so that the log alone gives the same taught
model again, also when the image is gone.
"""

from __future__ import annotations

import base64
import binascii
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from flawsort.core.errors import OptionError
from flawsort.core.records import Floats
from flawsort.labels.edit_checks import checked_text, group_of
from flawsort.labels.groups import Example, Labelling

# The name of an example may be its path.
LONGEST_PATH = 4096
_PLAIN = {"name", "sha256", "vector"}
_HEX = frozenset("0123456789abcdef")


def packed(name: str, sha256: str, vector: Floats) -> dict[str, str]:
    """An image as an edit holds it. vector: (dim,), its embedding."""
    numbers = np.asarray(vector, "<f2").tobytes()
    return {"name": name, "sha256": sha256, "vector": base64.b64encode(numbers).decode()}


def packed_example(example: Example) -> dict[str, Any]:
    """An example as the edit `carry` holds it, with its group."""
    return {**packed(example.name, example.sha256, example.vector), "group": example.group}


def examples_of(values: object, group: int) -> list[Example]:
    """The examples of the edit `teach`, all of one group."""
    found = [_example(value, group) for value in _listed(values, _PLAIN)]
    if not found:
        raise OptionError("examples must hold at least one image. Got none.")
    if len({one.sha256 for one in found}) < len(found):
        raise OptionError("examples must be different images. Got one of them twice.")
    return found


def carried_examples(values: object, known: Labelling) -> list[Example]:
    """The examples of the edit `carry`, each with its group."""
    found = {}
    for value in _listed(values, _PLAIN | {"group"}):
        example = _example(value, group_of(value["group"], known))
        found[example.sha256] = example
    return list(found.values())


def _listed(values: object, keys: set[str]) -> Iterator[Mapping[str, Any]]:
    if not isinstance(values, list | tuple):
        raise OptionError(f"examples must be a list of images. Got {reprlib.repr(values)}.")
    for value in values:
        if not isinstance(value, Mapping) or value.keys() != keys:
            raise OptionError(
                f"examples must each have {', '.join(sorted(keys))}. Got {reprlib.repr(value)}."
            )
        yield value


def _example(value: Mapping[str, Any], group: int) -> Example:
    digest = value["sha256"]
    if not isinstance(digest, str) or len(digest) != 64 or not set(digest) <= _HEX:
        raise OptionError(f"sha256 must be 64 hexadecimal digits. Got {reprlib.repr(digest)}.")
    name = checked_text(value["name"], "name", LONGEST_PATH)
    return Example(name, digest, group, _vector(value["vector"]))


def _vector(text: object) -> Any:
    try:
        if not isinstance(text, str):
            raise ValueError
        numbers = np.frombuffer(base64.b64decode(text, validate=True), "<f2").astype(np.float32)
    except (ValueError, binascii.Error) as error:
        raise OptionError(
            f"vector must be half-precision numbers in base64. Got {reprlib.repr(text)}."
        ) from error
    if not len(numbers) or not np.isfinite(numbers).all():
        raise OptionError("vector must hold finite numbers. Got none, or others.")
    return numbers
