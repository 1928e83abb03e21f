"""Exports as a zip that is streamed while it is written; the same groups give the same bytes."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from flawsort.core.errors import InputError
from flawsort.core.temporaries import clear_abandoned, private_folder
from flawsort.labels.regions import settled_regions
from flawsort.labels.state import State
from flawsort.outputs.exports import FORMATS, Choices, export_run
from flawsort.runs.run import Run

# The earliest time that a zip can hold, so that the bytes do not depend on the clock.
TIME = (1980, 1, 1, 0, 0, 0)
PIECE = 2**20
# These are compressed already.
_PACKED = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".parquet", ".pdf", ".zip")


def export_zip(run: Run, state: State, format: str) -> Iterator[bytes]:
    """The files of an export as a zip, piece by piece, with the groups as decided or suggested.
    Errors are raised before the first piece."""
    if format not in FORMATS:
        raise InputError(f"There is no export '{format}'. The formats are {', '.join(FORMATS)}.")
    clear_abandoned()
    with ExitStack() as stack:
        place = stack.enter_context(private_folder())
        # Links save a copy of each image. On Windows, links need special rights.
        chosen = FORMATS[format]
        link = "link" if sys.platform != "win32" and chosen.images else "copy"
        output = place / f"{format}{chosen.suffix}"
        files = export_run(
            run,
            state.settled,
            format,
            output,
            probability=state.suggestions.probability,
            regions=settled_regions(run, state),
            choices=Choices(link=link),
        ).paths
        pieces = _pieces(place, files, stack.pop_all())
    next(pieces)  # a started generator cleans up even if the rest is never read
    return pieces


def _pieces(place: Path, files: Sequence[Path], held: ExitStack) -> Iterator[bytes]:
    with held:
        yield b""
        yield from zip_pieces(place, files)


def zip_pieces(folder: Path, files: Sequence[Path]) -> Iterator[bytes]:
    """Files below a folder as a zip, in the order of their names."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w") as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), TIME)
            entry.external_attr = 0o644 << 16
            packed = path.suffix.lower() in _PACKED
            entry.compress_type = zipfile.ZIP_STORED if packed else zipfile.ZIP_DEFLATED
            large = path.stat().st_size >= 2**31 - 1
            with path.open("rb") as file, archive.open(entry, "w", force_zip64=large) as into:
                while piece := file.read(PIECE):
                    into.write(piece)
                    yield sink.taken()
            yield sink.taken()
    yield sink.taken()


class _Sink(io.RawIOBase):
    """A write-only stream that cannot seek, and holds only the bytes not taken yet."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, content: object) -> int:
        piece = bytes(content)  # type: ignore[call-overload]
        self._waiting += piece
        return len(piece)

    def taken(self) -> bytes:
        piece = bytes(self._waiting)
        self._waiting.clear()
        return piece
