"""What batches came to as parquet files, in a folder or an object store that all workers see.

One file a batch, one row an image: digest, name, and then either reason (why it could not be
used) or vector, unusual, scores, weights and valid. A file is there whole or not at all, under a
name that follows from what it is of: one that is there need not be computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.errors import OptionError
from flawsort.remote import file_system, read_bytes, write_whole
from flawsort.streaming import FORMAT, Batch, Part


class PartFiles:
    """Parts below a local path or a URL."""

    def __init__(self, place: str, setting: dict[str, object]) -> None:
        """setting: all that decides what an image comes to, besides the images themselves."""
        text = json.dumps({"format": FORMAT, **setting}, sort_keys=True, default=str)
        self.folder = f"{place.rstrip('/')}/{hashlib.sha256(text.encode()).hexdigest()[:20]}"

    def url(self, batch: Batch) -> str:
        """The name that a batch has here, whether or not it is there."""
        of = json.dumps([batch.images.digests, batch.images.names, batch.own.tolist()])
        return f"{self.folder}/{hashlib.sha256(of.encode()).hexdigest()[:32]}.parquet"

    def present(self) -> set[str]:
        """The names of all files that are there."""
        system, path = file_system(self.folder)
        try:
            system.invalidate_cache()
            found = system.ls(path, detail=False)
        except FileNotFoundError:
            return set()
        except Exception as error:
            raise self._out_of_reach("listed", error) from error
        names = {str(entry).rpartition("/")[2] for entry in found}
        return {f"{self.folder}/{name}" for name in names if name.endswith(".parquet")}

    def has(self, url: str) -> bool:
        system, path = file_system(url)
        return bool(system.exists(path))

    def load(self, url: str) -> Part | None:
        """What is kept there; None where nothing is, or it is damaged."""
        import pyarrow
        import pyarrow.parquet

        try:
            content = io.BytesIO(read_bytes(url))
            return _part(pyarrow.parquet.read_table(content, page_checksum_verification=True))
        except (OSError, ValueError, KeyError, pyarrow.ArrowException):
            return None

    def store(self, url: str, batch: Batch, part: Part) -> None:
        """Keep a part, whole or not at all."""
        import pyarrow.parquet

        content = io.BytesIO()
        # Dictionaries have no checksum, and nothing here repeats.
        pyarrow.parquet.write_table(
            _table(batch, part),
            content,
            compression="zstd",
            use_dictionary=False,
            write_page_checksum=True,
        )
        try:
            write_whole(url, content.getvalue())
        except OSError as error:
            raise self._out_of_reach("written", error) from error

    def remove(self, url: str) -> None:
        system, path = file_system(url)
        if system.exists(path):
            system.rm_file(path)

    def deaths(self, url: str) -> int:
        """How many workers were lost over a part, as far as `expect_death` was told."""
        try:
            return len(read_bytes(f"{url}.deaths"))
        except OSError:
            return 0

    def expect_death(self, url: str) -> None:
        write_whole(f"{url}.deaths", b"x" * (self.deaths(url) + 1))

    def forget_deaths(self, url: str) -> None:
        self.remove(f"{url}.deaths")

    def clear(self) -> None:
        """The run is finished: its parts have no more use. Where they cannot be removed they stay;
        the run is none the worse for it."""
        with contextlib.suppress(Exception):  # whatever a store's driver may raise
            system, path = file_system(self.folder)
            if system.exists(path):
                system.rm(path, recursive=True)

    def _out_of_reach(self, what: str, error: Exception) -> OptionError:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return OptionError(
            f"The parts cannot be {what} in '{self.folder}': {why}. Name a folder or a URL where "
            "every worker may write."
        )


def _table(batch: Batch, part: Part) -> Any:
    """A row an image: those described, then those set aside."""
    import pyarrow

    name_of = dict(zip(batch.images.digests, batch.images.names, strict=True))
    digest_of = dict(zip(batch.images.names, batch.images.digests, strict=True))
    nothing = [None] * len(part.reasons)
    valid = [None] * len(part.digests) if part.valid is None else _rows(part.valid)
    columns: dict[str, tuple[list[Any], Any]] = {
        "digest": ([*part.digests, *(digest_of[n] for n in part.reasons)], pyarrow.string()),
        "name": ([*(name_of[d] for d in part.digests), *part.reasons], pyarrow.string()),
        "vector": ([*part.vectors, *nothing], pyarrow.list_(pyarrow.float32())),
        "unusual": ([*part.unusual.tolist(), *nothing], pyarrow.float64()),
        "scores": ([*_rows(part.scores), *nothing], pyarrow.binary()),
        "weights": ([*_rows(part.weights), *nothing], pyarrow.binary()),
        "valid": ([*valid, *nothing], pyarrow.binary()),
        "reason": ([None] * len(part.digests) + [*part.reasons.values()], pyarrow.string()),
    }
    return pyarrow.table({k: pyarrow.array(v, kind) for k, (v, kind) in columns.items()})


def _part(table: Any) -> Part:
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    aside = [row for row, reason in enumerate(columns["reason"]) if reason is not None]
    n = table.num_rows - len(aside)  # those come last
    valid = None
    if n and columns["valid"][0] is not None:
        valid = _stacked(columns["valid"][:n], np.bool_)
    vectors = table.column("vector").combine_chunks().slice(0, n).flatten().to_numpy()
    return Part(
        tuple(columns["digest"][:n]),
        _stacked(columns["scores"][:n], np.float16),
        _stacked(columns["weights"][:n], np.float16),
        vectors.reshape(n, -1) if n else np.empty((0, 0), np.float32),
        np.array(columns["unusual"][:n], np.float64),
        valid,
        {columns["name"][row]: columns["reason"][row] for row in aside},
    )


def _rows(values: NDArray[Any]) -> list[bytes]:
    return [row.tobytes() for row in values]


def _stacked(rows: list[bytes], dtype: type) -> NDArray[Any]:
    joined: NDArray[Any] = np.frombuffer(b"".join(rows), dtype)
    return joined.reshape(len(rows), -1).copy() if rows else np.empty((0, 0), dtype)
