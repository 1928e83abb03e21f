"""Files that only grow: a CSV of the sorted images, and all events as lines of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flawsort.core.errors import OptionError
from flawsort.core.storage import append
from flawsort.core.tables import Table
from flawsort.daily.events import Event, as_line
from flawsort.runs.assigned import NEW_IMAGES

CSV, LINES = ".csv", ".jsonl"
# Proposed new kinds are numbered among the images of one table, so a table that grows has none.
LEFT_OUT = ("proposal",)


def check_outputs(outputs: Sequence[Path]) -> None:
    """Refuse files that cannot be added to, before anything is sorted."""
    for path in outputs:
        if path.suffix not in (CSV, LINES):
            raise OptionError(
                f"must be a file that ends in {CSV} or {LINES}. Got '{path}'.", parameter="output"
            )
        try:
            append(path, b"", 0)
            with path.open("rb") as file:
                begin = file.read(len(_head()))
        except OSError as error:
            raise OptionError(
                f"Cannot write '{path}': {error.strerror or error}. Choose another place with -o."
            ) from error
        if path.suffix == CSV and not _head().startswith(begin):
            raise OptionError(
                f"'{path}' is a table with other columns. Choose another file with -o."
            )


def added(path: Path, table: Table | None, events: Sequence[Event]) -> bytes:
    """What a round adds to a file. table: of the images, None if there are none."""
    if path.suffix == LINES:
        return b"".join(map(as_line, events))
    if table is None:
        return b""
    text = NEW_IMAGES.csv(without_left_out(table)).encode()
    new = not path.exists() or not path.stat().st_size
    return text if new else text[len(_head()) :]


def without_left_out(table: Table) -> Table:
    return {name: values for name, values in table.items() if name not in LEFT_OUT}


def _head() -> bytes:
    """The first line of a CSV."""
    names = [column.name for column in NEW_IMAGES]
    return NEW_IMAGES.csv(without_left_out({name: [] for name in names})).encode()
