"""Save a run to a folder and open it again: JSON, npy and parquet; no pickle.

A run is written to a temporary folder beside its place and moved there at the end, so that an
interrupted one never looks finished. manifest.json is written last and names the SHA-256 of every
other file; opening a run checks the files that it reads. docs/reference/run-format.md describes all
files.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import hashlib
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import OptionError, RunError
from flawsort.core.records import Bools, Floats, Ints

FORMAT_NAME = "flawsort-run"
FORMAT_VERSION = 3
MANIFEST = "manifest.json"
REPORT = "report.html"
MASK = "mask"
# What people put into a run later.
EDITS = "edits.sqlite"
ASSIGNED = "assigned"

Manifest = dict[str, Any]
Table = dict[str, list[Any]]

_INTEGERS = ("cluster", "runner_up", "nearest", "region", "proposal")
_FLOATS = (
    "score",
    "distance",
    "typicality",
    "runner_up_distance",
    "confidence",
    "novelty",
    "heat",
    "x",
    "y",
    "width",
    "height",
)
_COLUMN_TYPES = dict.fromkeys(_INTEGERS, "int64") | dict.fromkeys(_FLOATS, "float64")


@dataclass(frozen=True)
class Run:
    """Everything that one clustering found.

    manifest: settings, versions, hashes, evidence for k, timings, warnings
        (docs/reference/run-format.md).
    table: the columns of images.parquet, one value an image.
    regions: the columns of regions.parquet, one value a region, in the order of the images.
    region_embeddings: (n_regions, dim), in the same space as embeddings.
    scores: (n_images, n_patches), how unusual each patch is.
    valid: (n_images, n_patches) or None: which patches count.
    weights: (n_images, n_patches), rows sum to 1.
    embeddings: (n_images, dim).
    linkage: (n_images - 1, 4) in SciPy's convention; any k can be cut from it.
    layout: (n_images, 2), the two-dimensional map, in 0..1.
    reference: the patches that new images are compared with by `assign`: (n, dim) from normals,
        (n_peers, n_patches, dim) from peers; None where no comparison is made.
    thumbnails: one JPEG an image; of a large run those of the images that its report shows,
        and empty bytes for the others.
    lists: centres and offsets of the inverted lists that `reference` is sorted by, or None.
    whitening: (dim, dim), what residuals are multiplied by, or None where there are none.
    mask: the file that was the region of interest, or None.
    """

    manifest: Manifest
    table: Table
    regions: Table
    region_embeddings: Floats
    scores: Floats
    valid: Bools | None
    weights: Floats
    embeddings: Floats
    linkage: Floats
    layout: Floats
    reference: Floats | None
    thumbnails: tuple[bytes, ...]
    lists: tuple[Floats, Ints] | None = None
    whitening: Floats | None = None
    mask: bytes | None = None


def prepare_output(folder: Path, *, overwrite: bool, carried: bool = False) -> None:
    """Refuse early what could not be written at the end: hours of work must not be lost to it.
    carried: what people said of the run that is there goes into the new one."""
    _prepare(folder, overwrite)
    _protect(folder, carried)


def _prepare(folder: Path, overwrite: bool) -> None:
    retired = _beside(folder, "old")
    if retired.is_dir() and not folder.exists():  # killed between the two moves of a replacement
        retired.rename(folder)
    if folder.exists() and not folder.is_dir():
        raise OptionError(
            f"The output '{folder}' is a file. Name a folder that does not exist yet."
        )
    if os.path.ismount(folder):
        raise OptionError(
            f"The output folder '{folder}' is a mount point, which cannot be replaced by a "
            f"finished run. Name a folder inside it: '{folder / 'run'}'."
        )
    if folder.is_dir() and any(folder.iterdir()):
        if not _holds_run(folder):
            raise OptionError(
                f"The output folder '{folder}' holds files that are not a flawsort run. "
                "Name a folder that is empty or does not exist yet."
            )
        if not overwrite:
            raise OptionError(
                f"The output folder '{folder}' already holds a run. "
                "Name another one, or pass --overwrite to replace it."
            )
    partial = _partial(folder)
    _remove_left_overs(folder)
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        partial.mkdir()
        partial.rmdir()
    except OSError as error:
        raise OptionError(
            f"Cannot write to '{partial.parent}': {error.strerror or error}. "
            "Choose another place with -o."
        ) from error


def _protect(folder: Path, carried: bool) -> None:
    """What people put into a run must not go with it."""
    if (folder / EDITS).exists() and not carried:
        raise OptionError(
            f"The run '{folder}' holds what people said of its groups, which would be removed with "
            f"it. Keep it with --labels-from '{folder}', or name another folder with -o."
        )
    if (folder / ASSIGNED).exists():
        raise OptionError(
            f"The run '{folder}' keeps new images in '{ASSIGNED}', which would be removed with it. "
            "Name another folder with -o, or move them away."
        )


def save_run(
    run: Run,
    folder: Path,
    *,
    overwrite: bool = False,
    extra: Mapping[str, str] | None = None,
    furnish: Callable[[Path], None] | None = None,
    carried: bool = False,
) -> None:
    """Write a run. extra: more files by name, such as the report. furnish: puts further files into
    the folder, which may change later, before it is moved to its place. carried: they hold what
    people said of the run that is there; it is not replaced otherwise."""
    # What people put there meanwhile is asked about at the end, when the run is safe.
    _prepare(folder, overwrite)
    partial = _partial(folder)
    partial.mkdir()
    try:
        for name, values in _arrays(run).items():  # may be large: straight to disk
            np.save(partial / f"{name}.npy", values, allow_pickle=False)
        for name, content in _files(run).items():
            (partial / name).write_bytes(content)
        for name, text in (extra or {}).items():
            (partial / name).write_text(text, "utf-8")
        hashes = {path.name: _sha256(path) for path in sorted(partial.iterdir())}
        _write_json(partial / MANIFEST, {**run.manifest, "files": hashes})
        if furnish is not None:
            furnish(partial)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    try:
        _protect(folder, carried)  # somebody may have come in meanwhile
        _move_into_place(partial, folder.resolve())
    except (OSError, OptionError) as error:
        rescued = partial
        with contextlib.suppress(OSError):  # under a name that no later run takes for a left-over
            rescued = partial.rename(_beside(folder, f"finished-{os.getpid()}"))
        why = str(getattr(error, "strerror", None) or error).removesuffix(".")
        raise RunError(
            f"The run is whole but could not be moved to '{folder}': {why}. "
            f"It is in '{rescued}': move it yourself."
        ) from error


def open_run(folder: str | Path) -> Run:
    """Read a run back, whole. RunError where it is damaged, newer, or not a run."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    thumbs = _read(folder, manifest, "thumbnails.bin")
    ends = _array(folder, manifest, "thumbnails.npy")
    starts = [0, *ends[:-1]]
    files = manifest["files"]
    return Run(
        manifest={key: value for key, value in manifest.items() if key != "files"},
        table=_read_table(folder, manifest, "images.parquet"),
        regions=_read_table(folder, manifest, "regions.parquet"),
        region_embeddings=_array(folder, manifest, "region-embeddings.npy"),
        scores=_array(folder, manifest, "scores.npy"),
        valid=_array(folder, manifest, "valid.npy") if "valid.npy" in files else None,
        weights=_array(folder, manifest, "weights.npy"),
        embeddings=_array(folder, manifest, "embeddings.npy"),
        linkage=_array(folder, manifest, "linkage.npy"),
        layout=_array(folder, manifest, "layout.npy"),
        reference=_array(folder, manifest, "reference.npy") if "reference.npy" in files else None,
        lists=(
            (
                _array(folder, manifest, "list-centres.npy"),
                _array(folder, manifest, "list-offsets.npy"),
            )
            if "list-centres.npy" in files
            else None
        ),
        whitening=_array(folder, manifest, "whitening.npy") if "whitening.npy" in files else None,
        mask=_read(folder, manifest, MASK) if MASK in files else None,
        thumbnails=tuple(bytes(thumbs[a:b]) for a, b in zip(starts, ends, strict=True)),
    )


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run, its format checked."""
    path = folder / MANIFEST
    if not folder.is_dir():
        raise RunError(
            f"No run folder at '{folder}'. Check the path, or make one: flawsort cluster."
        )
    try:
        manifest = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise RunError(
            f"'{folder}' is not a flawsort run: it has no {MANIFEST}. Point at the folder given "
            "to -o of flawsort cluster."
        ) from None
    except (OSError, ValueError) as error:
        raise RunError(
            f"The run '{folder}' is damaged: {MANIFEST} cannot be read ({error})."
        ) from error
    declared = manifest.get("format") if isinstance(manifest, dict) else None
    if not isinstance(declared, dict) or declared.get("name") != FORMAT_NAME:
        raise RunError(f"'{folder}' is not a flawsort run: {MANIFEST} is not one of flawsort's.")
    if declared.get("version") != FORMAT_VERSION:
        raise RunError(
            f"The run '{folder}' has format version {declared.get('version')}; this flawsort reads "
            f"version {FORMAT_VERSION}. It was written by flawsort {manifest.get('flawsort')}: "
            "install that version or newer to open it."
        )
    return dict(manifest)


def replace_files(folder: Path, texts: Mapping[str, str]) -> None:
    """Put newly made files, such as the report, into a run."""
    manifest = read_manifest(folder)
    for name, text in texts.items():
        _write_text(folder / name, text)
        manifest["files"][name] = _sha256(folder / name)
    _write_json(folder / MANIFEST, manifest)


def read_text(folder: Path, name: str) -> str | None:
    """A text file of a run, checked; None where the run has none of that name."""
    manifest = read_manifest(folder)
    return _read(folder, manifest, name).decode() if name in manifest["files"] else None


def table_csv(table: Table) -> str:
    """A table as CSV text, with floats to six significant digits."""
    lines = [_csv_line(list(table))]
    for row in zip(*table.values(), strict=True):
        lines.append(_csv_line([f"{v:.6g}" if isinstance(v, float) else v for v in row]))
    return "\n".join([*lines, ""])


def _csv_line(cells: list[Any]) -> str:
    # The writer quotes only those line breaks that it ends lines with itself, and file names may
    # hold both.
    line = io.StringIO()
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n")


def table_parquet(table: Table) -> bytes:
    """A table as a parquet file."""
    import arro3.core as arrow
    from arro3.io import write_parquet

    types = {
        "int64": arrow.DataType.int64(),
        "float64": arrow.DataType.float64(),
        "string": arrow.DataType.string(),
    }
    columns: dict[str, Any] = {
        name: arrow.Array(values, type=types[_COLUMN_TYPES.get(name, "string")])
        for name, values in table.items()
    }
    content = io.BytesIO()
    write_parquet(arrow.Table.from_pydict(columns), content)
    return content.getvalue()


def read_table(content: bytes) -> Table:
    """The columns of a parquet file that `table_parquet` made."""
    from arro3.io import read_parquet

    table = read_parquet(io.BytesIO(content)).read_all()
    columns: dict[str, Any] = {name: table.column(name) for name in table.column_names}
    return {name: column.to_pylist() for name, column in columns.items()}


def _read_table(folder: Path, manifest: Manifest, name: str) -> Table:
    return read_table(_read(folder, manifest, name))


def _arrays(run: Run) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {
        "scores": run.scores,
        "weights": run.weights,
        "embeddings": run.embeddings,
        "region-embeddings": run.region_embeddings,
        "linkage": run.linkage,
        "layout": run.layout,
        "thumbnails": np.cumsum([len(one) for one in run.thumbnails], dtype=np.int64),
    }
    if run.reference is not None:
        arrays["reference"] = run.reference
    if run.valid is not None:
        arrays["valid"] = run.valid
    if run.lists is not None:
        arrays["list-centres"], arrays["list-offsets"] = run.lists
    if run.whitening is not None:
        arrays["whitening"] = run.whitening
    return arrays


def _files(run: Run) -> dict[str, bytes]:
    """Every file of a run but its arrays, the manifest and the report."""
    files = {}
    if run.mask is not None:
        files[MASK] = run.mask
    files["thumbnails.bin"] = b"".join(run.thumbnails)
    files["images.csv"] = table_csv(run.table).encode()
    files["images.parquet"] = table_parquet(run.table)
    files["regions.csv"] = table_csv(run.regions).encode()
    files["regions.parquet"] = table_parquet(run.regions)
    return files


def _read(folder: Path, manifest: Manifest, name: str) -> bytes:
    try:
        content = (folder / name).read_bytes()
        expected = manifest["files"][name]
    except (OSError, KeyError) as error:
        raise RunError(f"The run '{folder}' is damaged: {name} is missing ({error}).") from error
    if hashlib.sha256(content).hexdigest() != expected:
        raise RunError(
            f"The run '{folder}' is damaged: {name} has changed since it was written. "
            "Make the run again with flawsort cluster."
        )
    return content


def _array(folder: Path, manifest: Manifest, name: str) -> NDArray[Any]:
    loaded: NDArray[Any] = np.load(io.BytesIO(_read(folder, manifest, name)), allow_pickle=False)
    return loaded


def _partial(folder: Path) -> Path:
    """Where this process writes a run: two that have the same output must not mix their files."""
    return _beside(folder, f"partial-{os.getpid()}")


def _beside(folder: Path, what: str) -> Path:
    place = folder.resolve()  # also of ".", and of a link to a folder elsewhere
    return place.with_name(f".{place.name}.{what}")


def _remove_left_overs(folder: Path) -> None:
    """Clear what processes left that were killed while they saved a run here."""
    for path in _beside(folder, "x").parent.glob(
        f"{glob.escape(_beside(folder, 'partial-').name)}*"
    ):
        number = path.name.rpartition("-")[2]
        if number.isdigit() and (int(number) == os.getpid() or not _alive(int(number))):
            shutil.rmtree(path, ignore_errors=True)


def _alive(process: int) -> bool:
    if sys.platform == "win32":  # there, asking would end it
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _holds_run(folder: Path) -> bool:
    """Whether a folder holds a run of any format version."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        return bool(manifest["format"]["name"] == FORMAT_NAME)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _move_into_place(partial: Path, folder: Path) -> None:
    """The old run, if there is one, gives way only when the new one is whole."""
    old = _beside(folder, "old")
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_json(path: Path, content: Manifest) -> None:
    _write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _write_text(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, "utf-8")
    temporary.replace(path)
