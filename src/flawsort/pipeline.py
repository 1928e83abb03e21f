"""AnomalyClusterer: the whole story on one page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import NotFittedError

from flawsort.advice import Advice, advise
from flawsort.asked import (
    check_count,
    check_engine,
    check_n_clusters,
    check_random_state,
    oddities,
)
from flawsort.assign import Assignment, assign_embeddings
from flawsort.backbones import DEFAULT_BACKBONE, Backbone, BackboneInfo, load_backbone
from flawsort.cache import default_cache_folder
from flawsort.cluster import cut, number_by_size, reorder_leaves
from flawsort.describe import Described, Reference, fit_describer
from flawsort.engines import Engine, choose_engine
from flawsort.errors import BackboneError, InputError, OptionError
from flawsort.heatmaps import calibrate
from flawsort.hierarchy import tree
from flawsort.images import View, measure_window
from flawsort.inputs import (
    Images,
    checked,
    content_rows,
    distinct_rows,
    gather,
    nameless,
    used_images,
)
from flawsort.intake import Intake
from flawsort.memory import parse_size
from flawsort.presets import Method, resolve
from flawsort.records import Bags, Bools, ImageSet, Ints, Progress
from flawsort.references import NormalReference
from flawsort.streaming import PartStore, fit_streamed

if TYPE_CHECKING:
    from flawsort.fleet import RayWorkers


class NotYetFittedError(OptionError, NotFittedError):  # type: ignore[misc]
    """Results were asked for before `fit`; also scikit-learn's own error for that."""


class AnomalyClusterer(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Groups images by the kind of flaw they show.

    n_clusters: the number of groups, or "auto" to take the advice (`advice_`).
    method: "default", "paper", or a `Method` with choices of your own.
    backbone: the name of an embedded backbone or of a network of flawsort[torch], or the path of
        an ONNX file.
    backbone_weights: a file with the network's weights, which timm otherwise downloads.
    device: where patches are compared and a network runs: "cpu", "cuda" or "cuda:N"; None for a
        GPU if torch sees one. ONNX files run on the CPU.
    arithmetic: of the comparison: "int8", "float32" or "bfloat16" on a CPU, "float16", "bfloat16",
        "tf32" or "float32" on a GPU; None for the fastest that is good enough.
    image_size: side of the square input, where the backbone leaves it open.
    view: what of each file is looked at: fit, region of interest, tiles.
    cache: a folder for embedded images, "auto" for the user's own, None for none.
    max_memory: bytes, or a size such as "4GB", that a run should stay within: one that holds all
        patches in memory otherwise is streamed. None streams beyond 1 GB of patches.
    engine: "local", or "ray" to share the work out over a Ray cluster (flawsort[ray]), which
        streams a set of any size.
    address, n_workers, parts: of that cluster: where it is (None starts one here), how many
        workers it has, and a folder or URL that all of them see, for what they finish.
    random_state: every random choice follows from it.
    progress: called with a stage's name, how much of it is done, and how much there is.

    After `fit`, in the order of the images given: `labels_` (n,), `scores_` and `weights_`
    (n, n_patches), `embeddings_` (n, dim), `linkage_` (n - 1, 4), `valid_` (n, n_patches) or
    None. Besides: `n_clusters_`, `advice_`, `heat_`, `grid_`, `images_` and `normals_` (what was
    used and what was set aside), `scored_` (how, in words), `timings_`, `warnings_`.
    """

    def __init__(
        self,
        *,
        n_clusters: int | Literal["auto"] = "auto",
        method: str | Method = "default",
        backbone: str | Path = DEFAULT_BACKBONE,
        backbone_weights: str | Path | None = None,
        device: str | None = None,
        arithmetic: str | None = None,
        image_size: int | None = None,
        view: View | None = None,
        cache: str | Path | None = "auto",
        max_memory: str | int | None = None,
        engine: str = "local",
        address: str | None = None,
        n_workers: int | None = None,
        parts: str | Path | None = None,
        random_state: int = 0,
        progress: Progress | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.method = method
        self.backbone = backbone
        self.backbone_weights = backbone_weights
        self.device = device
        self.arithmetic = arithmetic
        self.image_size = image_size
        self.view = view
        self.cache = cache
        self.max_memory = max_memory
        self.engine = engine
        self.address = address
        self.n_workers = n_workers
        self.parts = parts
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Images, y: object = None, *, normal: Images | None = None) -> AnomalyClusterer:
        """Group images. X and normal: folders, files, globs or list files; arrays; or `Bags`.

        y is ignored, as in every clusterer.
        """
        method = resolve(self.method)
        check_n_clusters(self.n_clusters)
        check_random_state(self.random_state)
        if normal is not None and method.weights == "uniform":
            raise OptionError(
                "weights='uniform' compares images with nothing, so normal images have no use: "
                "leave one of the two out."
            )
        # Workers of a cluster have no GPU unless it was asked for.
        device = "cpu" if self.engine == "ray" and self.device is None else self.device
        engine = choose_engine(device, self.arithmetic, exact=method.exact is True)
        check_engine(self.engine, method.weights)
        limit = None if self.max_memory is None else parse_size(self.max_memory)
        self.timings_: dict[str, float] = {}
        self.warnings_: list[str] = []
        # Distinct contents are compared in the order of their content, so that neither names, nor
        # the order of files, nor copies can change a result; `rows` says whose bag each image has.
        with self._timed("find"):
            images = gather(X)
            normals = None if normal is None else gather(normal)
        self.backbone_: BackboneInfo | None = None
        self.images_: ImageSet
        self.normals_: ImageSet | None = None
        self.view_ = self.view or View()
        if isinstance(images, ImageSet) and not isinstance(normals, Bags):
            intake = self._ready(images, normals)
            if self.engine == "ray" or intake.streams(images, normals, method, limit):
                return self._fit_streamed(images, normals, intake, method, engine)
            bags, rows, known = self._take_in_files(images, normals, intake)
        elif isinstance(images, Bags) and not isinstance(normals, ImageSet):
            if self.engine == "ray":
                raise OptionError("engine 'ray' takes images from files or URLs, not as Bags.")
            bags, rows, known = self._take_in_bags(images, normals)
        else:
            raise InputError("Give images and normals both as files or arrays, or both as Bags.")
        return self._fit_bags(bags, rows, known, method, engine)

    def _fit_bags(
        self,
        bags: Bags,
        rows: NDArray[np.int64],
        normals: Bags | None,
        method: Method,
        engine: Engine,
    ) -> AnomalyClusterer:
        """With all bags in memory."""
        check_count(len(rows), self.n_clusters, self.images_)
        with self._timed("score"):
            self.describer_, described, self.scored_ = fit_describer(
                bags,
                normals,
                method,
                engine=engine,
                random_state=self.random_state,
                progress=self.progress,
            )
        with self._timed("calibrate"):
            normal_scores = _scores_of_normals(self.describer_.reference, normals)
            self.heat_ = calibrate(described.scores, bags.valid, normal_scores)
        return self._finish(described, bags.valid, bags.grid, rows)

    def _fit_streamed(
        self,
        images: ImageSet,
        normals: ImageSet | None,
        intake: Intake,
        method: Method,
        engine: Engine,
    ) -> AnomalyClusterer:
        """With a reference in memory, batch by batch past it."""
        workers, parts = self._workers(intake), None
        distinct = images.take(distinct_rows(images))
        reference, normal_scores = None, None
        if normals is not None:
            reference, normal_scores = self._bank(normals, len(distinct), intake, method, engine)
        if intake.cache_folder is not None and workers is None:
            known = None if self.normals_ is None else self.normals_.digests
            parts = PartStore(
                intake.cache_folder / "parts",
                {
                    "bags": intake.setting,
                    "max_pixels": self.view_.max_pixels,
                    "images": distinct.digests,
                    "normals": known,
                    "method": asdict(method),
                    "engine": engine.name,
                    "seed": self.random_state,
                },
            )
        with self._timed("score"):
            found = fit_streamed(
                distinct,
                intake.batch,
                reference,
                method,
                engine=engine,
                parts=parts,
                workers=workers,
                random_state=self.random_state,
                progress=self.progress,
            )
        self.describer_, self.scored_ = found.describer, found.how
        self.images_ = used_images(images, found.images)
        self.warnings_ += oddities(self.images_, self.normals_)
        rows = content_rows(self.images_, found.images)
        check_count(len(rows), self.n_clusters, self.images_)
        valid = None if found.valid is None else found.valid[found.sample]
        self.heat_ = calibrate(found.described.scores[found.sample], valid, normal_scores)
        self._finish(found.described, found.valid, found.grid, rows)
        self._kept = [kept for kept in (parts, workers) if kept is not None]
        return self

    def discard_parts(self) -> None:
        """Forget the finished batches of a streamed run, which `save` does when it is safe."""
        for kept in getattr(self, "_kept", []):
            kept.clear()
        self._kept = []

    def _workers(self, intake: Intake) -> RayWorkers | None:
        """Those of a cluster, where one was asked for."""
        if self.engine != "ray":
            return None
        from flawsort.fleet import ray_workers

        return ray_workers(
            backbone=self.backbone,
            setting=intake.setting,
            view=self.view_,
            parts=self.parts or default_cache_folder() / "fleet",
            weights=self.backbone_weights,
            image_size=self.image_size,
            device=self.device,
            arithmetic=self.arithmetic,
            address=self.address,
            n_workers=self.n_workers,
        )

    def _bank(
        self, normals: ImageSet, n_images: int, intake: Intake, method: Method, engine: Engine
    ) -> tuple[NormalReference, NDArray[np.float32] | None]:
        """The reference of a streamed run, and how unusual its normals look to each other."""
        with self._timed("embed"):
            known, self.normals_, there_are = intake.some_normals(normals, self.random_state)
            if there_are > len(known):
                self.warnings_.append(
                    f"A sample of {len(known):,} of the {there_are:,} normal images is used, as "
                    "many as fit in memory."
                )
            reference = NormalReference.from_bags(
                known, exact=method.exact, engine=engine, random_state=self.random_state
            )
        reference.decide(n_images * known.n_patches)
        with self._timed("calibrate"):
            return reference, reference.scores_of_normals(known)

    def _finish(
        self,
        described: Described,
        valid: Bools | None,
        grid: tuple[int, int],
        rows: NDArray[np.int64],
    ) -> AnomalyClusterer:
        """Groups, and everything in the order of the images given."""
        with self._timed("cluster"):
            self._cluster(described.embeddings, rows)
        self.scores_ = described.scores[rows]
        self.weights_ = described.weights[rows]
        self.valid_ = None if valid is None else valid[rows]
        self.grid_ = grid
        return self

    def _cluster(self, embeddings: NDArray[np.float32], rows: NDArray[np.int64]) -> None:
        """Link, advise and cut; embeddings: of distinct contents, rows: of each image."""
        self.embeddings_ = embeddings[rows]
        order = np.argsort(rows, kind="stable")
        ordered = self.embeddings_[order]
        merges = tree(ordered, progress=self.progress)
        self.advice_: Advice = advise(ordered, merges, random_state=self.random_state)
        self.n_clusters_ = self.advice_.k if self.n_clusters == "auto" else int(self.n_clusters)
        labels = cut(merges, self.n_clusters_)
        self.linkage_ = reorder_leaves(merges, order)
        self.labels_ = number_by_size(labels[np.argsort(order)])

    def fit_predict(self, X: Images, y: object = None, *, normal: Images | None = None) -> Ints:
        """As `fit`; returns `labels_`."""
        return self.fit(X, y, normal=normal).labels_

    def predict(self, X: Images) -> Ints:
        """(n,): the group of each new image, -1 for a kind not seen before.

        An image that cannot be used is an error here, since its row would be missing; `assign`
        goes on without it and says which it was.
        """
        images, found, _ = self.assign(X)
        if images.set_aside:
            first = images.set_aside[0]
            raise InputError(
                f"{len(images.set_aside)} of the images cannot be used, the first '{first.name}': "
                f"{first.reason}. Leave them out, or call assign, which does."
            )
        return found.labels

    def assign(self, X: Images) -> tuple[ImageSet, Assignment, NDArray[np.float32]]:
        """The usable new images, where they belong, and their scores (n, n_patches)."""
        self._check_fitted()
        given = gather(X)
        if isinstance(given, Bags):
            images, bags = nameless(given), given
        else:
            intake = Intake(self._same_backbone(), self.view_, self.cache, self.progress)
            embedded = intake.embed(given)
            images, bags = embedded.images, embedded.bags
        fitted = (self.scores_.shape[1], self.n_dims_)
        if bags.patches.shape[1:] != fitted:
            raise InputError(
                "New images must have as many patches and dimensions as those of the fit, "
                f"{fitted}. Got {bags.patches.shape[1:]}."
            )
        if isinstance(given, Bags):
            bags = checked(bags)
        described = self.describer_.describe(bags, progress=self.progress)
        found = assign_embeddings(described.embeddings, self.embeddings_, self.labels_)
        scores = described.scores
        if bags.valid is not None:  # padding never counts as unusual
            scores = np.where(bags.valid, scores, scores.min())
        return images, found, scores

    @property
    def n_dims_(self) -> int:
        """The dimensions of a patch."""
        return int(self.embeddings_.shape[1]) - (self.describer_.axis is not None)

    def save(self, folder: str | Path, *, overwrite: bool = False, report: bool = True) -> None:
        """Save everything found as a run folder, with its report.html unless told not to."""
        # Saving stands on this class, so it is imported late, here and in `load`.
        from flawsort.report import render_report
        from flawsort.runs import REPORT, save_run
        from flawsort.storing import make_run

        self._check_fitted()
        if not hasattr(self, "advice_"):
            raise OptionError("This model was loaded from a run: copy the run's folder instead.")
        run = make_run(self)
        extra = {REPORT: render_report(run)} if report else None
        save_run(run, Path(folder), overwrite=overwrite, extra=extra)
        self.discard_parts()

    @classmethod
    def load(cls, folder: str | Path) -> AnomalyClusterer:
        """The model of a saved run, ready to `assign` and `predict`."""
        from flawsort.storing import load_model

        return load_model(folder)

    def _take_in_bags(
        self, bags: Bags, normals: Bags | None
    ) -> tuple[Bags, NDArray[np.int64], Bags | None]:
        if normals is not None and normals.patches.shape[1:] != bags.patches.shape[1:]:
            raise InputError(
                "Images and normals must have the same number of patches and dimensions. Got "
                f"{bags.patches.shape[1:]} and {normals.patches.shape[1:]}."
            )
        bags, normals = checked(bags), None if normals is None else checked(normals)
        self.images_ = nameless(bags)
        self.normals_ = None if normals is None else nameless(normals)
        if normals is not None and self.normals_ is not None:
            normals = normals.take(distinct_rows(self.normals_))
        distinct = distinct_rows(self.images_)
        return bags.take(distinct), content_rows(self.images_, self.images_.take(distinct)), normals

    def _ready(self, images: ImageSet, normals: ImageSet | None) -> Intake:
        """Measure the window of deep images, if any, and open the backbone."""
        check_count(len(images), self.n_clusters, images)
        if self.view_.window is None:
            with self._timed("find"):
                sources = images.sources + (normals.sources if normals else ())
                window = measure_window(sources, self.view_.max_pixels)
                self.view_ = replace(self.view_, window=window)
        backbone = self._open_backbone()
        self.backbone_ = backbone.info
        return Intake(backbone, self.view_, self.cache, self.progress)

    def _take_in_files(
        self, images: ImageSet, normals: ImageSet | None, intake: Intake
    ) -> tuple[Bags, NDArray[np.int64], Bags | None]:
        known = None
        with self._timed("embed"):
            embedded = intake.embed(images.take(distinct_rows(images)))
            if normals is not None:
                known = intake.embed(normals.take(distinct_rows(normals)), "normal")
        self.images_ = used_images(images, embedded.images)
        if normals is not None and known is not None:
            self.normals_ = used_images(normals, known.images)
        self.warnings_ += oddities(self.images_, self.normals_)
        rows = content_rows(self.images_, embedded.images)
        return embedded.bags, rows, None if known is None else known.bags

    def _check_fitted(self) -> None:
        if not hasattr(self, "describer_"):
            raise NotYetFittedError(
                "This AnomalyClusterer is not fitted yet: call fit or load first."
            )

    def _same_backbone(self) -> Backbone:
        """The backbone of the fit: another one's patches would be compared with nothing like it."""
        if self.backbone_ is None:
            raise InputError("This model was fitted on Bags: give new images as Bags too.")
        backbone = self._open_backbone()
        if backbone.info.sha256 != self.backbone_.sha256:
            raise BackboneError(
                f"The backbone '{self.backbone}' is not the one of the fit any more: its SHA-256 "
                f"is {backbone.info.sha256}, recorded is {self.backbone_.sha256}."
            )
        return backbone

    def _open_backbone(self) -> Backbone:
        weights = None if self.backbone_weights is None else Path(self.backbone_weights)
        return load_backbone(
            self.backbone, image_size=self.image_size, weights=weights, device=self.device
        )

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        passed = time.perf_counter() - start
        self.timings_[stage] = round(self.timings_.get(stage, 0.0) + passed, 3)


def _scores_of_normals(
    reference: Reference | None, normals: Bags | None
) -> NDArray[np.float32] | None:
    if normals is None or not isinstance(reference, NormalReference):
        return None
    return reference.scores_of_normals(normals)
