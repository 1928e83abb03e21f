"""Everything in flawsort that writes a file or a folder, as something to be interrupted.

A writer writes one thing below a folder, in an old and in a new version, and reads it back as its
users do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from flawsort import Run, RunError, open_run
from flawsort.backbones.cache import Bag, BagCache
from flawsort.cli.assign import write_table
from flawsort.cli.sample_images import make_demo_images
from flawsort.core import storage
from flawsort.fitting.parts import PartFiles
from flawsort.labels.groups import first_labelling
from flawsort.outputs.exports import FORMATS, Choices, Format, export_run
from flawsort.research.paper import layout, measurements, run, shared
from flawsort.review.pictures import PictureFiles
from flawsort.runs.assigned import Kept, keep, open_kept
from flawsort.runs.changes import replace_files
from flawsort.runs.folder import read_text, save_run
from helpers.export_runs import make_run
from helpers.part_batches import a_batch
from helpers.plates import contents, fingerprint

_TORCH = find_spec("torch") is not None and find_spec("timm") is not None


@dataclasses.dataclass(frozen=True)
class Writer:
    """write: the old (0) or the new (1) version. read: what is there, None for nothing. begin: is
    called before the first version is written. replaces: whether it replaces what is there.
    separate: files that each stand for themselves, by name. every: where it has many steps alike,
    every second of them is tried, say."""

    write: Callable[[Path, int], object]
    read: Callable[[Path], Any]
    begin: Callable[[Path], object] = lambda folder: None
    replaces: bool = True
    separate: bool = False
    every: int = 1


@cache
def a_run(parts: Path) -> Run:
    """Two images in two groups; the pictures are in that folder."""
    return make_run(parts, names=("a.png", "lot/b.png"), regions=(), clusters=(0, 1))


def all_writers(parts: Path, saved: Path) -> dict[str, Writer]:
    """parts: a folder for the pictures of a run to export. saved: a run."""
    # A book is printed by Chromium, as a file like the book itself.
    formats = [format for format in FORMATS.values() if format.name != "book-pdf"]
    exports = {f"export {format.name}": _export(parts, format) for format in formats}
    return {
        "file": Writer(_write_file, _read_file),
        "run": Writer(partial(_save, saved), _read_run),
        "files of a run": Writer(_replace, _read_replaced, partial(_save, saved, version=0)),
        "assigned batch": Writer(_keep, _read_kept, replaces=False),
        **exports,
        "assign table .csv": Writer(partial(_table, ".csv"), shown),
        "assign table .parquet": Writer(partial(_table, ".parquet"), shown),
        "bag": Writer(_store_bag, _read_bag),
        "part of a batch": Writer(_store_part, _read_part),
        "thumbnail": Writer(_store_picture, _read_picture),
        "arrays of the paper": Writer(_write_arrays, _read_arrays),
        "measurement of the paper": Writer(_measure, _read_measured),
        "table of the paper": Writer(_paper_table, shown),
        "figure of the paper": Writer(_figure, shown, separate=True),
        **({"checkpoint": Writer(_checkpoint, _read_checkpoint)} if _TORCH else {}),
        "heat map": Writer(_heat_map, shown),
        "demo": Writer(_demo, shown, separate=True, every=9),
    }


def shown(folder: Path) -> dict[str, bytes]:
    """All files but hidden ones, by their names."""
    return {name: one for name, one in contents(folder).items() if "/." not in f"/{name}"}


def _write_file(folder: Path, version: int) -> None:
    storage.write_whole(folder / "a/file", f"version {version}", parents=True)


def _read_file(folder: Path) -> str | None:
    path = folder / "a/file"
    return path.read_text("utf-8") if path.exists() else None


def _save(saved: Path, folder: Path, version: int) -> None:
    opened = _opened(saved)
    changed = dataclasses.replace(opened, manifest={**opened.manifest, "seed": version})
    extra = {"report.html": f"report {version}", "evaluation.json": f"{version}"}
    save_run(changed, folder / "run", overwrite=True, extra=extra)


@cache
def _opened(saved: Path) -> Run:
    return open_run(saved)


def _read_run(folder: Path) -> Any:
    try:
        opened = open_run(folder / "run")
    except RunError as error:
        if not str(error).startswith("No run folder at"):
            raise
        return None
    return fingerprint(opened), read_text(folder / "run", "report.html")


def _replace(folder: Path, version: int) -> None:
    texts = {"evaluation.json": f"again {version}", "report.html": f"again {version}", "new": "x"}
    replace_files(folder / "run", texts)


def _read_replaced(folder: Path) -> Any:
    names = ("evaluation.json", "report.html", "new")
    return _read_run(folder), [read_text(folder / "run", name) for name in names]


def _keep(folder: Path, version: int) -> None:
    table = {
        "name": ["a", "b"], "path": ["/a", "/b"], "sha256": ["0" * 64, "1" * 64],
        "cluster": [version, -1], "nearest": [version, 0], "novelty": [0.5, 2.0],
        "score": [1.0, 3.0], "period": ["", ""], "proposal": [-1, 0],
    }  # fmt: skip
    keep(folder, Kept("monday", table, (b"jpeg", b""), {"at": "2026-01-01"}))


def _read_kept(folder: Path) -> Any:
    return open_kept(folder, "monday") if (folder / "assigned/monday").exists() else None


def _export(parts: Path, format: Format) -> Writer:
    output = f"out{format.suffix}"

    def write(folder: Path, version: int) -> None:
        run = a_run(parts)
        first = first_labelling(run)
        groups = {
            group: dataclasses.replace(one, name=f"title {version}")
            for group, one in first.groups.items()
        }
        labelling = dataclasses.replace(first, groups=groups)
        export_run(run, labelling, format.name, folder / output, choices=Choices(overwrite=True))

    def read(folder: Path) -> dict[str, bytes]:
        if (folder / output).is_file():
            return {output: (folder / output).read_bytes()}
        return contents(folder / output)

    # Images are copied to a folder that nobody sees yet, one like the other.
    return Writer(write, read, every=3 if format.images else 1)


def _table(suffix: str, folder: Path, version: int) -> None:
    write_table({"name": ["a", "b"], "cluster": [version, -1]}, folder / f"table{suffix}")


def _store_bag(folder: Path, version: int) -> None:
    patches = np.full((6, 4), version, np.float16)
    BagCache(folder / "bags", {}).store("digest", Bag(patches, (2, 3)))


def _read_bag(folder: Path) -> Any:
    bag = BagCache(folder / "bags", {}).load("digest")
    return None if bag is None else bag.patches.tolist()


def _store_part(folder: Path, version: int) -> None:
    batch, part = a_batch()
    reasons = dict.fromkeys(part.reasons, f"version {version}")
    PartFiles(str(folder / "parts"), {}).store(batch, dataclasses.replace(part, reasons=reasons))


def _read_part(folder: Path) -> Any:
    part = PartFiles(str(folder / "parts"), {}).load(a_batch()[0])
    return None if part is None else part.reasons


def _store_picture(folder: Path, version: int) -> None:
    # A picture of a tag is made once: another version has another tag.
    PictureFiles(folder / "thumbnails").get(f"{version}", lambda: b"picture %d" % version)


def _read_picture(folder: Path) -> Any:
    made = PictureFiles(folder / "thumbnails")
    return [made._store.load(f"{version}") for version in (0, 1)]


def _write_arrays(folder: Path, version: int) -> None:
    shared.write_arrays(folder / "computed/peers.npz", {"mean": np.full(3, version)})


def _read_arrays(folder: Path) -> Any:
    found = shared.read_arrays(folder / "computed/peers.npz")
    return None if found is None else {name: one.tolist() for name, one in found.items()}


def _measure(folder: Path, version: int) -> None:
    measurements._write(folder / "figures/key.json", {"nmi": float(version)})


def _read_measured(folder: Path) -> Any:
    return measurements._read(folder / "figures/key.json")


def _paper_table(folder: Path, version: int) -> None:
    run._written(folder / "main.txt", f"version {version}")


def _figure(folder: Path, version: int) -> None:
    class Drawn:
        def savefig(self, stream: Any, **options: Any) -> None:
            stream.write(f"{options['format']} {version}".encode())

    layout.write(Drawn(), folder, "main", "Main")  # type: ignore[arg-type]


def _checkpoint(folder: Path, version: int) -> None:
    import torch

    from flawsort.research.deep import checkpoints

    tensors = {"weights": torch.full((3,), float(version))}
    checkpoints.save(folder / "kept.safetensors", {"epoch": version}, tensors)


def _read_checkpoint(folder: Path) -> Any:
    from flawsort.research.deep import checkpoints

    found = checkpoints.load(folder / "kept.safetensors")
    return None if found is None else (found[0]["epoch"], found[1]["weights"].tolist())


def _heat_map(folder: Path, version: int) -> None:
    drawn = Image.new("RGB", (30, 30), (version, 0, 0))
    storage.write_whole(folder / "maps/a.png", partial(drawn.save, format="PNG"), parents=True)


def _demo(folder: Path, version: int) -> None:
    few = {"good": 1, "scratch": 1}
    make_demo_images(folder / "demo", random_state=version, kinds=few, n_good=1)


WRITERS = list(all_writers(Path("parts"), Path("saved")))
