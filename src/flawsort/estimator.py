"""AnomalyClusterer: the whole story on one page."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import NotFittedError

from flawsort.backbones import DEFAULT_BACKBONE, Backbone, BackboneInfo, load_backbone
from flawsort.clusters import group
from flawsort.clusters.assign import Assignment, Groups
from flawsort.clusters.kinds import Kinds, find_plain_groups, kinds_of_images, sort_regions
from flawsort.core.errors import BackboneError, InputError, OptionError
from flawsort.core.records import Bags, Bools, Floats, ImageSet, Ints, Progress
from flawsort.embeddings.describer import Described, fit_describer
from flawsort.embeddings.extent import N_EXTENTS
from flawsort.embeddings.heat import image_heat
from flawsort.embeddings.method import Method, resolve
from flawsort.fitting.assign_new import batches_of_bags, batches_of_files, sort_newcomers
from flawsort.fitting.checks import (
    check_count,
    check_n_clusters,
    check_random_state,
    check_runner,
    input_warnings,
)
from flawsort.fitting.fit import Workers, fit_streamed
from flawsort.fitting.memory import parse_size
from flawsort.fitting.normal_bank import local_workers, normal_bank
from flawsort.fitting.source import Intake, TakenIn, take_in_bags
from flawsort.images.inputs import (
    Images,
    check_found,
    content_rows,
    distinct_rows,
    gather,
    said_of,
    used_images,
    with_window,
)
from flawsort.images.view import View
from flawsort.scores.engines import Engine, choose_engine

# Whether a region is like any image is asked of so many of a large set.
COMPARED_WITH_REGIONS = 16384


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
    runner: "local", or "ray" to share the work out over a Ray cluster (flawsort[ray]), which
        streams a set of any size.
    address, n_workers, parts: of that cluster: where it is (None starts one here), how many
        workers it has, and a folder or URL that all of them see, for what they finish. Where
        no address is given it is kept in the cache, or, without one, in a temporary folder.
    random_state: every random choice follows from it.
    progress: called with a stage's name, how much of it is done, and how much there is.

    After `fit`, in the order of the images given: `labels_` (n,), `scores_` and `weights_`
    (n, n_patches), `embeddings_` (n, dim), `linkage_` (n - 1, 4), `valid_` (n, n_patches) or
    None; `regions_`, the places that stand out and the group that each is like, and `kinds_`, of
    each image its group and the others that regions of it are like. Besides: `n_clusters_`,
    `advice_`, `heat_`, `grid_`, `images_` and `normals_` (what was used and what was set aside),
    `scored_` (how, in words), `timings_`, `warnings_`.
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
        runner: str = "local",
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
        self.runner = runner
        self.address = address
        self.n_workers = n_workers
        self.parts = parts
        self.random_state = random_state
        self.progress = progress

    def fit(
        self,
        X: Images,
        y: object = None,
        *,
        normal: Images | None = None,
        said: Mapping[str, int] | None = None,
    ) -> AnomalyClusterer:
        """Group images. X and normal: folders, files, globs or list files; arrays; or `Bags`.

        said: what people said of some images, the SHA-256 of each to a number: those of one number
        stay together and those of two apart. y is ignored, as in every clusterer.
        """
        method = resolve(self.method)
        check_n_clusters(self.n_clusters)
        check_random_state(self.random_state)
        if normal is not None and method.weights == "uniform":
            raise OptionError(
                "'uniform' compares images with nothing, so normal images have no use: leave one "
                "of the two out.",
                parameter="weights",
            )
        # Workers of a cluster have no GPU unless it was asked for.
        device = "cpu" if self.runner == "ray" and self.device is None else self.device
        engine = choose_engine(device, self.arithmetic, exact=method.exact is True)
        check_runner(
            self.runner,
            method,
            normals=normal is not None,
            address=self.address,
            n_workers=self.n_workers,
            parts=self.parts,
            max_memory=self.max_memory,
        )
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
            if self.runner == "ray" or intake.streams(images, normals, method, limit):
                return self._fit_streamed(images, normals, intake, method, engine, said)
            with self._timed("embed"):
                taken = intake.take_in(images, normals)
            self.warnings_ += input_warnings(taken.images, taken.normals)
        elif isinstance(images, Bags) and not isinstance(normals, ImageSet):
            if self.runner == "ray":
                raise OptionError(
                    "'ray' takes images from files or URLs, not as Bags.", parameter="runner"
                )
            taken = take_in_bags(images, normals)
        else:
            raise InputError("Give images and normals both as files or arrays, or both as Bags.")
        return self._fit_bags(taken, method, engine, said)

    def _fit_bags(
        self, taken: TakenIn, method: Method, engine: Engine, said: Mapping[str, int] | None
    ) -> AnomalyClusterer:
        """With all bags in memory."""
        self.images_, self.normals_ = taken.images, taken.normals
        check_count(len(taken.rows), self.n_clusters, self.images_)
        with self._timed("score"):
            self.describer_, described, self.scored_ = fit_describer(
                taken.bags,
                taken.known,
                method,
                engine=engine,
                random_state=self.random_state,
                progress=self.progress,
            )
        return self._finish(described, taken.bags.valid, taken.bags.grid, taken.rows, said)

    def _fit_streamed(
        self,
        images: ImageSet,
        normals: ImageSet | None,
        intake: Intake,
        method: Method,
        engine: Engine,
        said: Mapping[str, int] | None,
    ) -> AnomalyClusterer:
        """With a reference in memory, batch by batch past it."""
        workers = self._workers(intake)
        distinct = images.take(distinct_rows(images))
        known, normal_scores = None, None
        seed = self.random_state
        if normals is not None:
            with self._timed("embed"):
                bank = normal_bank(
                    normals, len(distinct), intake, method, engine=engine, random_state=seed
                )
            self.normals_, known = bank.images, bank.reference
            self.warnings_ += bank.notes
            with self._timed("calibrate"):
                normal_scores = known.scores_of_normals(bank.known)
            del bank  # and its bags
        with self._timed("score"):
            found = fit_streamed(
                distinct,
                intake.batch,
                known,
                method,
                engine=engine,
                normal_scores=normal_scores,
                workers=workers,
                random_state=seed,
                progress=self.progress,
            )
        self.describer_, self.scored_ = found.describer, found.how
        self.images_ = used_images(images, found.images)
        self.warnings_ += input_warnings(self.images_, self.normals_)
        rows = content_rows(self.images_, found.images)
        check_count(len(rows), self.n_clusters, self.images_)
        self._finish(found.described, found.valid, found.grid, rows, said)
        self._kept = [workers]
        return self

    def discard_parts(self) -> None:
        """Forget the finished batches of a streamed run, which `save` does when it is safe."""
        for kept in getattr(self, "_kept", []):
            kept.clear()
        self._kept = []

    def _workers(self, intake: Intake) -> Workers:
        """This process, or those of a cluster where one was asked for."""
        if self.runner != "ray":
            return local_workers(intake)
        from flawsort.fitting.ray_workers import ray_workers

        return ray_workers(
            backbone=self.backbone,
            setting=intake.setting,
            view=self.view_,
            parts=self.parts,
            cache=intake.cache_folder,
            weights=self.backbone_weights,
            image_size=self.image_size,
            device=self.device,
            arithmetic=self.arithmetic,
            address=self.address,
            n_workers=self.n_workers,
        )

    def _finish(
        self,
        described: Described,
        valid: Bools | None,
        grid: tuple[int, int],
        rows: NDArray[np.int64],
        said: Mapping[str, int] | None,
    ) -> AnomalyClusterer:
        """Groups, and everything in the order of the images given."""
        self.heat_ = self.describer_.heat
        self.embeddings_ = described.embeddings[rows]
        # In the order of content, whatever the images are called.
        order = np.argsort(rows, kind="stable")
        with self._timed("cluster"):
            found = group(
                self.embeddings_,
                order,
                self.n_clusters,
                said=None if said is None else said_of(self.images_, said),
                random_state=self.random_state,
                progress=self.progress,
            )
        self.labels_, self.linkage_ = found.labels, found.linkage
        self.n_clusters_, self.advice_ = found.n_clusters, found.advice
        self.warnings_ += found.notes
        self.scores_ = described.scores[rows]
        self.weights_ = described.weights[rows]
        self.valid_ = None if valid is None else valid[rows]
        self.grid_ = grid
        with self._timed("regions"):
            groups = Groups.of(
                self.embeddings_[order], self.labels_[order], most=COMPARED_WITH_REGIONS
            )
            self.regions_ = sort_regions(
                described.outlines, described.region_embeddings, groups, rows
            )
        return self

    @property
    def kinds_(self) -> Kinds:
        """For each image its group, and the other groups that regions of it are like."""
        regions = self.regions_
        return kinds_of_images(
            self.labels_, regions.outlines.images, regions.labels, self._plain_groups()
        )

    def _plain_groups(self) -> frozenset[int]:
        return find_plain_groups(self.image_heat_, self.labels_, self.regions_.outlines.images)

    @property
    def image_heat_(self) -> Floats | None:
        """(n,), how hot each image is; None without known-good images, since only they say what is
        normal: among peers a faint flaw may look it."""
        reference = self.describer_.reference
        if reference is None or not reference.knows_normal:
            return None
        return image_heat(self.scores_, self.heat_, self.valid_)

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

    def assign(self, X: Images) -> tuple[ImageSet, Assignment, Floats]:
        """The usable new images, where they belong, and their scores (n, n_patches).

        They are looked at in batches, so that there may be any number of them: only the scores
        stay in memory, in half precision (float16) where `fit` would stream as many images. An
        image of the fit itself is described as it was then.
        """
        self._check_fitted()
        given = gather(X)
        shape = (int(self.scores_.shape[1]), self.n_dims_)
        if isinstance(given, Bags):
            images, batches = batches_of_bags(given, shape)
        else:
            intake = Intake(self._same_backbone(), self.view_, self.cache, self.progress)
            images, batches = given, batches_of_files(given, intake, shape)
        groups = Groups.of(self.embeddings_, self.labels_)
        return sort_newcomers(
            images,
            batches,
            self.describer_,
            groups,
            shape=shape,
            fitted=self.images_,
            fitted_scores=self.scores_,
            fitted_regions=self.regions_,
            plain_groups=self._plain_groups(),
            progress=self.progress,
        )

    @property
    def n_dims_(self) -> int:
        """The dimensions of a patch."""
        extents = 0 if self.describer_.axes is None else N_EXTENTS
        return int(self.embeddings_.shape[1]) - extents

    def save(self, folder: str | Path, *, overwrite: bool = False, report: bool = True) -> None:
        """Save everything found as a run folder, with its report.html unless told not to."""
        # Saving stands on this class, so it is imported late, here and in `load`.
        from flawsort.outputs.report import render_report
        from flawsort.runs.convert import make_run
        from flawsort.runs.folder import REPORT, prepare_output, save_run

        self._check_fitted()
        if not hasattr(self, "advice_"):
            raise OptionError("This model was loaded from a run: copy the run's folder instead.")
        prepare_output(Path(folder), overwrite=overwrite)
        run = make_run(self)
        extra = {REPORT: render_report(run)} if report else None
        save_run(run, Path(folder), overwrite=overwrite, extra=extra)
        self.discard_parts()

    @classmethod
    def load(
        cls, folder: str | Path, *, device: str | None = None, arithmetic: str | None = None
    ) -> AnomalyClusterer:
        """The model of a saved run, ready to `assign` and `predict`, on a device of your choice."""
        from flawsort.runs.convert import load_model

        return load_model(folder, device=device, arithmetic=arithmetic)

    def _ready(self, images: ImageSet, normals: ImageSet | None) -> Intake:
        """Measure the window of deep images, if any, and open the backbone."""
        check_found(images)
        check_count(len(images), self.n_clusters, images)
        with self._timed("find"):
            self.view_ = with_window(self.view_, images, normals)
        backbone = self._open_backbone()
        self.backbone_ = backbone.info
        return Intake(backbone, self.view_, self.cache, self.progress)

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
