"""Describe batches on many machines, with Ray Data actors that hold a backbone.

A worker writes the part of a batch as a file and returns only the file's name. So a lost worker
costs only its current batches, an interrupted run can resume, and this process never holds more
than it reads.
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

from flawsort.backbones import BackboneChoice, open_backbone
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
from flawsort.fitting.source import FileSource, embed_views
from flawsort.images.budget import BUDGET, usual_limit
from flawsort.images.view import View
from flawsort.scores.engines import ARITHMETIC, CpuEngine, Engine, choose_engine
from flawsort.scores.views import references_of

# Batches that are sent to a worker: the current one and the next. Both are lost with it.
BATCHES_AHEAD = 2
# A batch that crashes its worker this many times in a row is an error.
MAX_DEATHS = 4


@dataclass(frozen=True)
class WorkerSpec:
    """How a worker embeds and compares. It is sent to every worker, so it is small.

    backbones, view: how images are viewed; files that they name must be at the same path on every
    machine. setting: of the bags (`FileSource.bag_setting`), to check that a worker has the same
    backbones. cpus, gpus: of one worker.
    """

    backbones: tuple[BackboneChoice, ...]
    view: View
    setting: dict[str, object]
    arithmetic: str | None
    cpus: int
    gpus: float


def ray_runner(
    *,
    backbones: Sequence[BackboneChoice],
    setting: Mapping[str, object],
    view: View,
    parts: str | Path | None,
    cache: Path | None = None,
    device: str | None = None,
    arithmetic: str | None = None,
    address: str | None = None,
    n_workers: int | None = None,
    cpus_per_worker: int = 1,
    gpus_per_worker: float | None = None,
) -> RayRunner:
    """A runner with workers on a Ray cluster.

    setting: `bag_setting` of the source. parts: a folder that all machines share,
    or a URL. None if all workers are on this machine: the parts are kept in the cache, or, without
    a cache, in a temporary folder that is removed after reading. device: None or "cpu" for the
    CPU; "cuda" gives each worker a GPU, or the fraction gpus_per_worker of one. address: of a
    running cluster, "auto" for the one this machine belongs to; None starts one here and stops it
    again. n_workers: None for as many as fit.
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
        raise OptionError(f"gpus_per_worker must be 0 to 1, or a whole number. Got {gpus}.")
    spec = WorkerSpec(
        backbones=tuple(map(_absolute, backbones)),
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
    return RayRunner(spec, place, address, n_workers, shared=parts is not None)


class BatchWorker:
    """A worker: holds a backbone and the reference, and describes batch after batch."""

    def __init__(self, spec: WorkerSpec, shared: list[Any], files: PartFiles) -> None:
        """shared: Ray's reference to the describer, which all workers of a machine share."""
        self._files = files
        self._problem: FlawsortError | None = None
        self._n_threads = spec.cpus
        self._decoding = usual_limit() * spec.cpus // max(spec.cpus, os.cpu_count() or 1)
        try:
            # Ray counts processors but does not limit their use.
            with limit(self._n_threads):
                self._open(spec, shared)
        except FlawsortError as error:  # Ray would retry forever, and hide the message
            self._problem = error

    def __call__(self, table: Any) -> dict[str, list[str]]:
        """table: of pyarrow, one row per batch. Returns the names of the parts, or the errors."""
        names, kinds, reasons = [], [], []
        for row in table.to_pylist():
            batch = _unpacked(row)
            names.append(self._files.name(batch))
            with limit(self._n_threads), BUDGET.limited(self._decoding):
                problem = self._problem or self._finish(batch)
            kinds.append(type(problem).__name__ if problem else "")
            reasons.append(str(problem) if problem else "")
        return {"name": names, "kind": kinds, "reason": reasons}

    def _open(self, spec: WorkerSpec, shared: list[Any]) -> None:
        import ray

        self._view = spec.view
        backbones = (open_backbone(one, device=_device(spec)) for one in spec.backbones)
        self._backbones = tuple(backbones)
        source = FileSource(ImageSet((), (), ()), self._backbones, self._view)
        if source.bag_setting != spec.setting:
            names = " or ".join(f"'{one.name}'" for one in spec.backbones)
            raise BackboneError(
                f"The backbone {names} or the mask on {platform.node()} differs from that on the "
                "machine that started the run. Install the same files on every machine."
            )
        self._describer: Describer = ray.get(shared[0])
        reference = self._describer.reference
        if reference is not None:
            exact = self._describer.method.exact is True
            for one in references_of(reference):  # each has an engine for its own amount of work
                one.engine = engine_here(one.engine, spec, exact=exact)
        self._restarted = bool(ray.get_runtime_context().was_current_actor_reconstructed)

    def _finish(self, batch: Batch) -> FlawsortError | None:
        """Describe a batch and write its part, unless the part already exists."""
        try:
            if self._files.has(batch):
                return None
            # Only a restarted worker can have a batch that crashes workers.
            if self._restarted and self._files.deaths(batch) + 1 >= MAX_DEATHS:
                self._files.forget_deaths(batch)
                return InputError(
                    f"The batch of '{batch.images.names[0]}' crashed its worker {MAX_DEATHS} "
                    "times. A file may crash the decoder, or memory may be short: fewer workers "
                    "per machine leave more memory for each."
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
        return embed_views(images, self._backbones, self._view)


@dataclass
class RayRunner:
    """Describes batches with Ray Data actors; see `ray_runner`.

    parts: None for a temporary folder. shared: the user gave `parts`, so all machines share it;
    otherwise it is a folder of flawsort on this machine. worker: the class of the actors.
    """

    spec: WorkerSpec
    parts: str | None
    address: str | None = None
    n_workers: int | None = None
    shared: bool = True
    worker: type[BatchWorker] = BatchWorker
    _files: PartFiles | None = field(default=None, init=False, repr=False)

    def describe(self, batches: Sequence[Batch], describer: Describer) -> Iterator[Part]:
        """The part of each batch, in order. Existing parts are read; if all exist, no cluster is
        needed."""
        with self._place() as place:
            files = self._files = PartFiles(place, self.setting(batches, describer))
            if not self.shared:
                files.clear_abandoned()
            yield from self._describe(batches, describer, files)

    def setting(self, batches: Sequence[Batch], describer: Describer) -> dict[str, object]:
        """Everything that decides the results."""
        bags = {**self.spec.setting, "max_pixels": self.spec.view.max_pixels}
        engine = f"GPU {self.spec.arithmetic}" if self.spec.gpus else None
        return run_setting(bags, describer, batches, engine)

    def clear(self) -> None:
        """Remove the parts of a finished run."""
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
        present = files.present()
        missing = [batch for batch in batches if files.name(batch) not in present]
        waiting = {files.name(batch) for batch in missing}
        finished = self._finished(missing, describer, files)
        try:
            for batch in batches:
                name = files.name(batch)
                part = files.load(batch) if name in present else None
                if part is None and name in present:  # damaged, which is rare
                    waiting.difference_update(finished)  # wait until the workers are free
                    files.remove(batch)
                    list(self._finished([batch], describer, files))
                while name in waiting:
                    waiting.discard(next(finished, name))
                    if not waiting:
                        finished.close()  # stops a cluster that was started here
                yield part or _read(files, batch)
        finally:
            finished.close()

    def _finished(
        self, batches: Sequence[Batch], describer: Describer, files: PartFiles
    ) -> Generator[str]:
        """The names of the batches' parts, in order, as workers finish them."""
        if not batches:
            return
        spec = self.spec
        with connected(self.address, spec.cpus * (self.n_workers or 1)) as ray:
            if not self.shared:
                check_one_machine(ray)
            shared = ray.put(describer)
            data = ray.data.from_arrow([_packed(batch) for batch in batches])
            data.context.execution_options.preserve_order = True
            data.context.enable_progress_bars = False
            size = self.n_workers or n_fitting(ray, spec.cpus, spec.gpus)
            # Ray Data restarts an actor that died, and sends it its batches again.
            rows = data.map_batches(
                self.worker,
                fn_constructor_args=(spec, [shared], files),
                batch_size=1,
                batch_format="pyarrow",
                compute=ray.data.ActorPoolStrategy(
                    size=min(size, len(batches)), max_tasks_in_flight_per_actor=BATCHES_AHEAD
                ),
                num_cpus=spec.cpus,
                num_gpus=spec.gpus or None,
            )
            for row in rows.iter_rows():
                if row["kind"]:
                    raise getattr(errors, row["kind"], FlawsortError)(row["reason"])
                yield row["name"]


def engine_here(engine: Engine, spec: WorkerSpec, *, exact: bool) -> Engine:
    """The engine of a worker: that of the run on a CPU, or one for the worker's GPU."""
    if not spec.gpus and isinstance(engine, CpuEngine):
        return engine
    kind = _device(spec)
    arithmetic = spec.arithmetic if spec.arithmetic in ARITHMETIC[kind] else None
    # Chosen for unlimited work, so that a small last batch uses the same arithmetic.
    return choose_engine(kind, arithmetic, exact=exact).for_work(math.inf)


def _device(spec: WorkerSpec) -> str:
    """The device of a worker. Ray assigns CUDA GPUs."""
    return Cuda.kind if spec.gpus else CPU


def _read(files: PartFiles, batch: Batch) -> Part:
    part = files.load(batch)
    if part is None:
        raise OptionError(
            f"A worker wrote '{files.folder}/{files.name(batch)}', but this machine cannot read "
            "it. The parts must be in a folder that all machines share, or at a URL such as "
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
            "runner 'ray' needs images as files or URLs, which every worker can read. "
            "Got an array; leave the runner out."
        )
    return os.fsencode(str(source.absolute()))


def _absolute(choice: BackboneChoice) -> BackboneChoice:
    """The same choice with absolute paths; a name unchanged."""
    name = str(choice.name)
    path, mark, outputs = name.partition("#")
    if path.lower().endswith(".onnx"):
        name = os.path.abspath(path) + mark + outputs
    weights = None if choice.weights is None else os.path.abspath(choice.weights)
    return dataclasses.replace(choice, name=name, weights=weights)
