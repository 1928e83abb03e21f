"""Edits, files of them, and whether two labellings are the same, for the tests of the labels."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from flawsort.labels.edit_checks import Edit
from flawsort.labels.groups import Labelling
from flawsort.labels.store import EditStore


def accept(*rows: int) -> Edit:
    return Edit("accept", {"images": list(rows)})


def fill(path: Path, count: int) -> None:
    with EditStore(path) as store:
        for number in range(count):
            store.append(accept(number % 30), number)


def fill_at_once(path: Path, edits: list[Edit]) -> None:
    """Many edits, without waiting for the disk after each."""
    with EditStore(path) as store:
        store.append(edits[0], 0)
    rows = [(edit.kind, json.dumps(edit.payload)) for edit in edits[1:]]
    statement = "INSERT INTO edits (at, author, kind, payload) VALUES ('', '', ?, ?)"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.executemany(statement, rows)
        other.commit()


def same(one: Labelling, other: Labelling) -> bool:
    arrays = np.array_equal(one.labels, other.labels) and np.array_equal(
        one.confirmed, other.confirmed
    )
    rest = [_rest(each) for each in (one, other)]
    return arrays and rest[0] == rest[1]


def _rest(labelling: Labelling) -> tuple[object, ...]:
    examples = [
        (one.name, one.sha256, one.group, one.vector.tobytes()) for one in labelling.examples
    ]
    return (
        labelling.groups,
        labelling.several,
        labelling.k,
        labelling.next_id,
        labelling.rejected,
        examples,
        labelling.answers,
        labelling.audits,
        labelling.threshold,
        labelling.different,
        labelling.notes,
    )


def open_files() -> list[str]:
    """None where the system does not tell."""
    if not Path("/proc/self/fd").is_dir():
        return []
    return [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]


@contextlib.contextmanager
def as_anybody() -> Iterator[None]:
    """Without the rights of root, who may write wherever he likes."""
    if os.geteuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def lock(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)
