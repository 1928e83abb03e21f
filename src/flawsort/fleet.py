"""Batches described by many machines: actors of Ray Data that hold a backbone.

A worker writes what a batch came to as a parquet file and returns only that file's name. So a
worker that is lost costs the batches it was at, an interrupted run goes on where it stopped, and
this process never holds more than it reads.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import platform
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from flawsort import errors, threads
from flawsort.backbones import load_backbone
from flawsort.describe import Describer
from flawsort.embed import cache_setting, embed_batch
from flawsort.engines import ARITHMETIC, CpuEngine, Engine, choose_engine
from flawsort.errors import BackboneError, FlawsortError, InputError, OptionError
from flawsort.images import View
from flawsort.partfiles import PartFiles
from flawsort.raycluster import connected, n_fitting
from flawsort.records import Bags, ImageSet, RemoteFile, Source
from flawsort.references import NormalReference, PeerReference
from flawsort.remote import is_url
from flawsort.streaming import Batch, Part, describe_batch

# Batches that are sent to a worker: the one it is at, and the next. All are lost with it.
BATCHES_AHEAD = 2
# A batch that takes its worker down so often in a row is given up.
MAX_DEATHS = 4


@dataclass(frozen=True)
class Recipe:
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


def ray_workers(
    *,
    backbone: str | Path,
    setting: Mapping[str, object],
    view: View,
    parts: str | Path,
    weights: str | Path | None = None,
    image_size: int | None = None,
    device: str | None = None,
    arithmetic: str | None = None,
    address: str | None = None,
    n_workers: int | None = None,
    cpus_per_worker: int = 1,
    gpus_per_worker: float | None = None,
) -> RayWorkers:
    """Workers on a Ray cluster.

    setting: `cache_setting` of the backbone and the view. parts: a folder that all machines see,
    or a URL. device: None or "cpu" for the CPU; "cuda" gives each worker a GPU, of which
    gpus_per_worker may be a share. address: of a running cluster, "auto" for the one this machine
    belongs to; None starts one here and stops it again. n_workers: None for as many as fit.
    """
    for name in ("ray", "pyarrow", "fsspec"):
        if find_spec(name) is None:
            raise OptionError("engine 'ray' needs Ray: pip install 'flawsort[ray]'.")
    for name, value in (("n_workers", n_workers), ("cpus_per_worker", cpus_per_worker)):
        if value is not None and value < 1:
            raise OptionError(f"{name} must be at least 1. Got {value}.")
    gpus = gpus_per_worker
    if gpus is None:
        gpus = 1.0 if device is not None and device.startswith("cuda") else 0.0
    if gpus < 0 or (gpus > 1 and gpus != int(gpus)):
        raise OptionError(f"gpus_per_worker must be a share of 1 or a whole number. Got {gpus}.")
    recipe = Recipe(
        backbone=_absolute(str(backbone)),
        weights=None if weights is None else os.path.abspath(weights),
        image_size=image_size,
        view=view if view.mask is None else dataclasses.replace(view, mask=view.mask.absolute()),
        setting=dict(setting),
        arithmetic=arithmetic,
        cpus=cpus_per_worker,
        gpus=gpus,
    )
    place = str(parts) if is_url(str(parts)) else os.path.abspath(parts)
    return RayWorkers(recipe, place, address, n_workers)


class BatchWorker:
    """One worker: a backbone, the reference, and batch after batch."""

    def __init__(self, recipe: Recipe, shared: list[Any], files: PartFiles) -> None:
        """shared: where Ray keeps the describer, once for all workers of a machine."""
        self._files = files
        self._problem: FlawsortError | None = None
        try:
            self._open(recipe, shared)
        except FlawsortError as error:  # Ray would try for ever, and wrap it beyond recognition
            self._problem = error

    def __call__(self, table: Any) -> dict[str, list[str]]:
        """table: pyarrow's, a row a batch. Returns the parts' names, or what went wrong."""
        urls, kinds, reasons = [], [], []
        for row in table.to_pylist():
            batch = _unpacked(row)
            urls.append(self._files.url(batch))
            problem = self._problem or self._finish(batch, urls[-1])
            kinds.append(type(problem).__name__ if problem else "")
            reasons.append(str(problem) if problem else "")
        return {"url": urls, "kind": kinds, "reason": reasons}

    def _open(self, recipe: Recipe, shared: list[Any]) -> None:
        import ray
        from threadpoolctl import threadpool_limits

        # Ray counts processors and keeps nobody from using more.
        threads.n_threads = lambda: recipe.cpus
        threadpool_limits(limits=recipe.cpus)
        self._view = recipe.view
        self._backbone = load_backbone(
            recipe.backbone,
            image_size=recipe.image_size,
            weights=None if recipe.weights is None else Path(recipe.weights),
            device="cuda" if recipe.gpus else "cpu",
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

    def _finish(self, batch: Batch, url: str) -> FlawsortError | None:
        """Describe a batch and keep what it came to, unless somebody has done so already."""
        try:
            if self._files.has(url):
                return None
            # Only a worker that died once can be at a batch that kills workers.
            if self._restarted and self._files.deaths(url) + 1 >= MAX_DEATHS:
                self._files.forget_deaths(url)
                return InputError(
                    f"The batch of '{batch.images.names[0]}' took its worker down {MAX_DEATHS} "
                    "times. Its files may crash the decoder, or memory is short: fewer workers on "
                    "a machine leave more for each."
                )
            if self._restarted:
                self._files.expect_death(url)
            part = describe_batch(batch, self._embed, self._describer)
            self._files.store(url, batch, part)
            if self._restarted:
                self._files.forget_deaths(url)
        except FlawsortError as error:
            return error
        return None

    def _embed(self, images: ImageSet) -> tuple[Bags | None, ImageSet]:
        return embed_batch(images, self._backbone, self._view)


@dataclass
class RayWorkers:
    """Batches described by actors of Ray Data; see `ray_workers`. worker: what the actors are."""

    recipe: Recipe
    parts: str
    address: str | None = None
    n_workers: int | None = None
    worker: type[BatchWorker] = BatchWorker
    _used: dict[str, PartFiles] = field(default_factory=dict, init=False, repr=False)

    def describe(self, batches: Sequence[Batch], describer: Describer) -> Iterator[Part]:
        """What the images of each batch came to, in the order of the batches. Parts that are there
        already are read; where all are, no cluster is needed."""
        files = PartFiles(self.parts, part_setting(self.recipe, describer))
        self._used[files.folder] = files
        there = files.present()
        missing = [batch for batch in batches if files.url(batch) not in there]
        waiting = {files.url(batch) for batch in missing}
        finished = self._finished(missing, describer, files)
        try:
            for batch in batches:
                url = files.url(batch)
                part = files.load(url) if url in there else None
                if part is None and url in there:  # damaged, which is rare
                    waiting.difference_update(finished)  # the workers are busy until then
                    files.remove(url)
                    list(self._finished([batch], describer, files))
                while url in waiting:
                    waiting.discard(next(finished, url))
                    if not waiting:
                        finished.close()  # which stops what was started
                yield part or self._read(files, url)
        finally:
            finished.close()

    def clear(self) -> None:
        """Remove the parts of all that was described: the run is finished."""
        for files in self._used.values():
            files.clear()
        self._used.clear()

    def _read(self, files: PartFiles, url: str) -> Part:
        part = files.load(url)
        if part is None:
            raise OptionError(
                f"A worker wrote '{url}', and it cannot be read here. The folder of the parts must "
                "be one that all machines see, or a URL such as s3://bucket/parts."
            )
        return part

    def _finished(
        self, batches: Sequence[Batch], describer: Describer, files: PartFiles
    ) -> Generator[str]:
        """The names of the batches' parts, in order, as workers finish them."""
        if not batches:
            return
        recipe = self.recipe
        with connected(self.address, recipe.cpus * (self.n_workers or 1)) as ray:
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
                yield row["url"]


def part_setting(recipe: Recipe, describer: Describer) -> dict[str, object]:
    """All that decides what an image comes to: how it is embedded and what it is compared with."""
    reference = describer.reference
    content = hashlib.sha256()
    kind, exact, engine = "none", None, ""
    if isinstance(reference, NormalReference):
        kind, exact = "normals", reference.exact
        content.update(_bytes(reference.bank))
        if not reference.exact:
            content.update(_bytes(reference.lists.centres))
    elif isinstance(reference, PeerReference):
        kind = "peers"
        content.update(_bytes(reference.peers))
    if reference is not None:
        engine = reference.engine.name if not recipe.gpus else f"GPU {recipe.arithmetic}"
    return {
        "bags": recipe.setting,
        "method": dataclasses.asdict(describer.method),
        "temperature": describer.temperature,
        "reference": [kind, exact, content.hexdigest()],
        "engine": engine,
    }


def engine_here(engine: Engine, recipe: Recipe, *, exact: bool) -> Engine:
    """The engine of a worker: the run's own on a CPU, and on a GPU that of the worker's GPU."""
    if not recipe.gpus and isinstance(engine, CpuEngine):
        return engine
    kind = "cuda" if recipe.gpus else "cpu"
    arithmetic = recipe.arithmetic if recipe.arithmetic in ARITHMETIC[kind] else None
    # For much work: one arithmetic for all batches, however small the last.
    return choose_engine(kind, arithmetic, exact=exact).for_work(math.inf)


def _packed(batch: Batch) -> Any:
    """A batch as a pyarrow table of one row, which Ray sends to one worker."""
    import pyarrow

    images = batch.images
    row = {
        "names": (list(images.names), pyarrow.list_(pyarrow.string())),
        "sources": ([_address(s) for s in images.sources], pyarrow.list_(pyarrow.binary())),
        "digests": (list(images.digests), pyarrow.list_(pyarrow.string())),
        "own": (batch.own.tolist(), pyarrow.list_(pyarrow.int64())),
    }
    return pyarrow.table({name: pyarrow.array([v], kind) for name, (v, kind) in row.items()})


def _unpacked(row: dict[str, Any]) -> Batch:
    sources: list[Source] = []
    for address in row["sources"]:
        text = os.fsdecode(address)
        sources.append(RemoteFile(text) if is_url(text) else Path(text))
    images = ImageSet(tuple(row["names"]), tuple(sources), tuple(row["digests"]))
    return Batch(images, np.array(row["own"], np.int64))


def _address(source: Source) -> bytes:
    if isinstance(source, np.ndarray):
        raise InputError(
            "engine 'ray' takes images from files or URLs, where every worker can read them. "
            "Got an array; leave the engine out."
        )
    return os.fsencode(str(source.absolute()))


def _absolute(backbone: str) -> str:
    """The path of an ONNX file made absolute; a name as it is."""
    path, mark, outputs = backbone.partition("#")
    return os.path.abspath(path) + mark + outputs if path.lower().endswith(".onnx") else backbone


def _bytes(values: np.ndarray[Any, Any]) -> memoryview:
    return np.ascontiguousarray(values).data.cast("B")
