"""Batches described by many machines: actors of Ray Data that hold a backbone.

A worker writes what a batch came to as a file and returns only that file's name. So a
worker that is lost costs the batches it was at, an interrupted run goes on where it stopped, and
this process never holds more than it reads.
"""

from __future__ import annotations

import dataclasses
import math
import os
import platform
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from flawsort.backbones import load_backbone
from flawsort.backbones.embed import cache_setting, embed_batch
from flawsort.core import errors
from flawsort.core.devices import CPU, Cuda, gpu_of
from flawsort.core.errors import BackboneError, FlawsortError, InputError, OptionError
from flawsort.core.records import Bags, ImageSet, RemoteFile, Source
from flawsort.core.remote import is_url
from flawsort.core.threads import limit
from flawsort.embeddings.describer import Describer
from flawsort.fitting.parts import Batch, Part, PartFiles, run_setting
from flawsort.fitting.ray_cluster import check_one_machine, connected, n_fitting
from flawsort.fitting.runner import describe_batch
from flawsort.images.view import View
from flawsort.scores.engines import ARITHMETIC, CpuEngine, Engine, choose_engine

# Batches that are sent to a worker: the one it is at, and the next. All are lost with it.
BATCHES_AHEAD = 2
# A batch that takes its worker down so often in a row is given up.
MAX_DEATHS = 4


@dataclass(frozen=True)
class WorkerSpec:
    """How a worker embeds and compares; it travels, so it is small.

    backbone, weights, view: as for AnomalyClusterer; files that they name must be at the same path
    on every machine. setting: of the bags (`cache_setting`), by which a worker knows that its
    backbone is the same. cpus, gpus: of one worker.
    """

    backbone: str
    weights: str | None
    image_size: int | None
    view: View
    setting: dict[str, object]
    arithmetic: str | None
    cpus: int
    gpus: float


def ray_runner(
    *,
    backbone: str | Path,
    setting: Mapping[str, object],
    view: View,
    parts: str | Path | None,
    cache: Path | None = None,
    weights: str | Path | None = None,
    image_size: int | None = None,
    device: str | None = None,
    arithmetic: str | None = None,
    address: str | None = None,
    n_workers: int | None = None,
    cpus_per_worker: int = 1,
    gpus_per_worker: float | None = None,
) -> RayRunner:
    """Workers on a Ray cluster.

    setting: `cache_setting` of the backbone and the view. parts: a folder that all machines see,
    or a URL; None where all workers are on this machine: the parts are kept in its cache then, or,
    where there is none, in a temporary folder that is removed when they are read. device: None or
    "cpu" for the CPU; "cuda" gives each worker a GPU, of which gpus_per_worker may be a share.
    address: of a running cluster, "auto" for the one this machine belongs to; None starts one here
    and stops it again. n_workers: None for as many as fit.
    """
    for name in ("ray", "pyarrow", "fsspec"):
        if find_spec(name) is None:
            raise OptionError("'ray' needs Ray: pip install 'flawsort[ray]'.", parameter="runner")
    for name, value in (("n_workers", n_workers), ("cpus_per_worker", cpus_per_worker)):
        if value is not None and value < 1:
            raise OptionError(f"must be at least 1. Got {value}.", parameter=name)
    gpus = gpus_per_worker
    if gpus is None:
        gpus = 1.0 if device is not None and gpu_of(device) is not None else 0.0
    if gpus < 0 or (gpus > 1 and gpus != int(gpus)):
        raise OptionError(f"gpus_per_worker must be a share of 1 or a whole number. Got {gpus}.")
    recipe = WorkerSpec(
        backbone=_absolute(str(backbone)),
        weights=None if weights is None else os.path.abspath(weights),
        image_size=image_size,
        view=(
            dataclasses.replace(view, mask=view.mask.absolute())
            if isinstance(view.mask, Path)
            else view
        ),
        setting=dict(setting),
        arithmetic=arithmetic,
        cpus=cpus_per_worker,
        gpus=gpus,
    )
    place = None if parts is None and cache is None else str(parts or f"{cache}/parts")
    if place is not None and not is_url(place):
        place = os.path.abspath(place)
    return RayRunner(recipe, place, address, n_workers, shared=parts is not None)


class BatchWorker:
    """One worker: a backbone, the reference, and batch after batch."""

    def __init__(self, recipe: WorkerSpec, shared: list[Any], files: PartFiles) -> None:
        """shared: where Ray keeps the describer, once for all workers of a machine."""
        self._files = files
        self._problem: FlawsortError | None = None
        self._n_threads = recipe.cpus
        try:
            # Ray counts processors and keeps nobody from using more.
            with limit(self._n_threads):
                self._open(recipe, shared)
        except FlawsortError as error:  # Ray would try for ever, and wrap it beyond recognition
            self._problem = error

    def __call__(self, table: Any) -> dict[str, list[str]]:
        """table: pyarrow's, a row a batch. Returns the parts' names, or what went wrong."""
        names, kinds, reasons = [], [], []
        for row in table.to_pylist():
            batch = _unpacked(row)
            names.append(self._files.name(batch))
            with limit(self._n_threads):
                problem = self._problem or self._finish(batch)
            kinds.append(type(problem).__name__ if problem else "")
            reasons.append(str(problem) if problem else "")
        return {"name": names, "kind": kinds, "reason": reasons}

    def _open(self, recipe: WorkerSpec, shared: list[Any]) -> None:
        import ray

        self._view = recipe.view
        self._backbone = load_backbone(
            recipe.backbone,
            image_size=recipe.image_size,
            weights=None if recipe.weights is None else Path(recipe.weights),
            device=_device(recipe),
        )
        if cache_setting(self._backbone, self._view) != recipe.setting:
            raise BackboneError(
                f"The backbone '{recipe.backbone}' or the mask is another one on "
                f"{platform.node()} than where the run was started. Install the same files "
                "on every machine."
            )
        self._describer: Describer = ray.get(shared[0])
        reference = self._describer.reference
        if reference is not None:
            exact = self._describer.method.exact is True
            reference.engine = engine_here(reference.engine, recipe, exact=exact)
        self._restarted = bool(ray.get_runtime_context().was_current_actor_reconstructed)

    def _finish(self, batch: Batch) -> FlawsortError | None:
        """Describe a batch and keep what it came to, unless somebody has done so already."""
        try:
            if self._files.has(batch):
                return None
            # Only a worker that died once can be at a batch that kills workers.
            if self._restarted and self._files.deaths(batch) + 1 >= MAX_DEATHS:
                self._files.forget_deaths(batch)
                return InputError(
                    f"The batch of '{batch.images.names[0]}' took its worker down {MAX_DEATHS} "
                    "times. Its files may crash the decoder, or memory is short: fewer workers on "
                    "a machine leave more for each."
                )
            if self._restarted:
                self._files.expect_death(batch)
            part = describe_batch(batch, self._embed, self._describer)
            self._files.store(batch, part)
            if self._restarted:
                self._files.forget_deaths(batch)
        except FlawsortError as error:
            return error
        return None

    def _embed(self, images: ImageSet) -> tuple[Bags | None, ImageSet]:
        return embed_batch(images, self._backbone, self._view)


@dataclass
class RayRunner:
    """Batches described by actors of Ray Data; see `ray_runner`.

    parts: None for a temporary folder. shared: somebody said that all machines see it; else it is
    this machine's, and of flawsort's own. worker: what the actors are.
    """

    recipe: WorkerSpec
    parts: str | None
    address: str | None = None
    n_workers: int | None = None
    shared: bool = True
    worker: type[BatchWorker] = BatchWorker
    _files: PartFiles | None = field(default=None, init=False, repr=False)

    def describe(self, batches: Sequence[Batch], describer: Describer) -> Iterator[Part]:
        """What the images of each batch came to, in the order of the batches. Parts that are there
        already are read; where all are, no cluster is needed."""
        with self._place() as place:
            files = self._files = PartFiles(place, self.setting(batches, describer))
            if not self.shared:
                files.clear_abandoned()
            yield from self._describe(batches, describer, files)

    def setting(self, batches: Sequence[Batch], describer: Describer) -> dict[str, object]:
        """All that decides what the images come to."""
        bags = {**self.recipe.setting, "max_pixels": self.recipe.view.max_pixels}
        engine = f"GPU {self.recipe.arithmetic}" if self.recipe.gpus else None
        return run_setting(bags, describer, batches, engine)

    def clear(self) -> None:
        """Remove the parts of what was described: the run is finished."""
        if self._files is not None:
            self._files.clear()

    @contextmanager
    def _place(self) -> Iterator[str]:
        if self.parts is not None:
            yield self.parts
            return
        with tempfile.TemporaryDirectory(prefix="flawsort-", ignore_cleanup_errors=True) as place:
            yield place

    def _describe(
        self, batches: Sequence[Batch], describer: Describer, files: PartFiles
    ) -> Iterator[Part]:
        there = files.present()
        missing = [batch for batch in batches if files.name(batch) not in there]
        waiting = {files.name(batch) for batch in missing}
        finished = self._finished(missing, describer, files)
        try:
            for batch in batches:
                name = files.name(batch)
                part = files.load(batch) if name in there else None
                if part is None and name in there:  # damaged, which is rare
                    waiting.difference_update(finished)  # the workers are busy until then
                    files.remove(batch)
                    list(self._finished([batch], describer, files))
                while name in waiting:
                    waiting.discard(next(finished, name))
                    if not waiting:
                        finished.close()  # which stops what was started
                yield part or _read(files, batch)
        finally:
            finished.close()

    def _finished(
        self, batches: Sequence[Batch], describer: Describer, files: PartFiles
    ) -> Generator[str]:
        """The names of the batches' parts, in order, as workers finish them."""
        if not batches:
            return
        recipe = self.recipe
        with connected(self.address, recipe.cpus * (self.n_workers or 1)) as ray:
            if not self.shared:
                check_one_machine(ray)
            shared = ray.put(describer)
            data = ray.data.from_arrow([_packed(batch) for batch in batches])
            data.context.execution_options.preserve_order = True
            data.context.enable_progress_bars = False
            size = self.n_workers or n_fitting(ray, recipe.cpus, recipe.gpus)
            # Ray Data restarts an actor that died and gives it its batches again.
            rows = data.map_batches(
                self.worker,
                fn_constructor_args=(recipe, [shared], files),
                batch_size=1,
                batch_format="pyarrow",
                compute=ray.data.ActorPoolStrategy(
                    size=min(size, len(batches)), max_tasks_in_flight_per_actor=BATCHES_AHEAD
                ),
                num_cpus=recipe.cpus,
                num_gpus=recipe.gpus or None,
            )
            for row in rows.iter_rows():
                if row["kind"]:
                    raise getattr(errors, row["kind"], FlawsortError)(row["reason"])
                yield row["name"]


def engine_here(engine: Engine, recipe: WorkerSpec, *, exact: bool) -> Engine:
    """The engine of a worker: the run's own on a CPU, and on a GPU that of the worker's GPU."""
    if not recipe.gpus and isinstance(engine, CpuEngine):
        return engine
    kind = _device(recipe)
    arithmetic = recipe.arithmetic if recipe.arithmetic in ARITHMETIC[kind] else None
    # For much work: one arithmetic for all batches, however small the last.
    return choose_engine(kind, arithmetic, exact=exact).for_work(math.inf)


def _device(recipe: WorkerSpec) -> str:
    """Where a worker computes. The GPUs that Ray hands out are CUDA's."""
    return Cuda.kind if recipe.gpus else CPU


def _read(files: PartFiles, batch: Batch) -> Part:
    part = files.load(batch)
    if part is None:
        raise OptionError(
            f"A worker wrote '{files.folder}/{files.name(batch)}', and it cannot be read here. The "
            "folder of the parts must be one that all machines see, or a URL such as "
            "s3://bucket/parts."
        )
    return part


def _packed(batch: Batch) -> Any:
    """A batch as a pyarrow table of one row, which Ray sends to one worker."""
    import pyarrow

    images = batch.images
    rows = None if batch.self_rows is None else batch.self_rows.tolist()
    row: dict[str, tuple[Any, Any]] = {
        "names": (list(images.names), pyarrow.list_(pyarrow.string())),
        "sources": ([_address(s) for s in images.sources], pyarrow.list_(pyarrow.binary())),
        "digests": (list(images.digests), pyarrow.list_(pyarrow.string())),
        "self_rows": (rows, pyarrow.list_(pyarrow.int64())),
    }
    return pyarrow.table({name: pyarrow.array([v], kind) for name, (v, kind) in row.items()})


def _unpacked(row: dict[str, Any]) -> Batch:
    sources: list[Source] = []
    for address in row["sources"]:
        text = os.fsdecode(address)
        sources.append(RemoteFile(text) if is_url(text) else Path(text))
    images = ImageSet(tuple(row["names"]), tuple(sources), tuple(row["digests"]))
    rows = row["self_rows"]
    return Batch(images, None if rows is None else np.array(rows, np.int64))


def _address(source: Source) -> bytes:
    if isinstance(source, np.ndarray):
        raise InputError(
            "runner 'ray' takes images from files or URLs, where every worker can read them. "
            "Got an array; leave the runner out."
        )
    return os.fsencode(str(source.absolute()))


def _absolute(backbone: str) -> str:
    """The path of an ONNX file made absolute; a name as it is."""
    path, mark, outputs = backbone.partition("#")
    return os.path.abspath(path) + mark + outputs if path.lower().endswith(".onnx") else backbone
