"""AnomalyClusterer: the whole story on one page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import NotFittedError

from flawsort.advice import Advice, advise
from flawsort.assign import Assignment, assign_embeddings
from flawsort.backbones import DEFAULT_BACKBONE, Backbone, BackboneInfo, load_backbone
from flawsort.cache import BagCache, default_cache_folder
from flawsort.cluster import cut, number_by_size, reorder_leaves, ward_linkage
from flawsort.describe import Describer, fit_describer
from flawsort.embed import Embedded, cache_setting, embed
from flawsort.engines import choose_engine
from flawsort.errors import BackboneError, InputError, OptionError
from flawsort.heatmaps import HeatScale, calibrate
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
from flawsort.presets import Method, resolve
from flawsort.records import Bags, ImageSet, Ints, Progress
from flawsort.references import NormalReference

# Fewer normal images than this hardly show all that is normal.
FEW_NORMALS = 10


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
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Images, y: object = None, *, normal: Images | None = None) -> AnomalyClusterer:
        """Group images. X and normal: folders, files, globs or list files; arrays; or `Bags`.

        y is ignored, as in every clusterer.
        """
        method = resolve(self.method)
        _check_n_clusters(self.n_clusters)
        _check_random_state(self.random_state)
        if normal is not None and method.weights == "uniform":
            raise OptionError(
                "weights='uniform' compares images with nothing, so normal images have no use: "
                "leave one of the two out."
            )
        engine = choose_engine(self.device, self.arithmetic, exact=method.exact is True)
        self.timings_: dict[str, float] = {}
        self.warnings_: list[str] = []
        # Distinct contents are compared in the order of their content, so that neither names, nor
        # the order of files, nor copies can change a result; `rows` says whose bag each image has.
        bags, rows, normals = self._take_in(X, normal)
        _check_count(len(rows), self.n_clusters, self.images_)
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
            self.heat_ = _calibrate(described.scores, bags, normals, self.describer_)
        with self._timed("cluster"):
            self._cluster(described.embeddings, rows)
        self.scores_ = described.scores[rows]
        self.weights_ = described.weights[rows]
        self.valid_ = None if bags.valid is None else bags.valid[rows]
        self.grid_ = bags.grid
        return self

    def _cluster(self, embeddings: NDArray[np.float32], rows: NDArray[np.int64]) -> None:
        """Link, advise and cut; embeddings: of distinct contents, rows: of each image."""
        self.embeddings_ = embeddings[rows]
        order = np.argsort(rows, kind="stable")
        ordered = self.embeddings_[order]
        merges = ward_linkage(ordered)
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
            embedded = self._embed(given, self._same_backbone())
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

    @classmethod
    def load(cls, folder: str | Path) -> AnomalyClusterer:
        """The model of a saved run, ready to `assign` and `predict`."""
        from flawsort.storing import load_model

        return load_model(folder)

    def _take_in(
        self, X: Images, normal: Images | None
    ) -> tuple[Bags, NDArray[np.int64], Bags | None]:
        """Bags of distinct contents in their order, the bag of each image, and normal bags."""
        with self._timed("find"):
            images = gather(X)
            normals = None if normal is None else gather(normal)
        self.backbone_: BackboneInfo | None = None
        self.view_ = self.view or View()
        if isinstance(images, ImageSet) and not isinstance(normals, Bags):
            return self._take_in_files(images, normals)
        if isinstance(images, Bags) and not isinstance(normals, ImageSet):
            return self._take_in_bags(images, normals)
        raise InputError("Give images and normals both as files or arrays, or both as Bags.")

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

    def _take_in_files(
        self, images: ImageSet, normals: ImageSet | None
    ) -> tuple[Bags, NDArray[np.int64], Bags | None]:
        _check_count(len(images), self.n_clusters, images)
        if self.view_.window is None:
            with self._timed("find"):
                sources = images.sources + (normals.sources if normals else ())
                window = measure_window(sources, self.view_.max_pixels)
                self.view_ = replace(self.view_, window=window)
        backbone = self._open_backbone()
        self.backbone_ = backbone.info
        known = None
        with self._timed("embed"):
            embedded = self._embed(images.take(distinct_rows(images)), backbone)
            if normals is not None:
                known = self._embed(normals.take(distinct_rows(normals)), backbone, "normal")
        self.images_ = used_images(images, embedded.images)
        self.normals_ = None
        if normals is not None and known is not None:
            self.normals_ = used_images(normals, known.images)
        self._note_oddities()
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

    def _embed(self, images: ImageSet, backbone: Backbone, kind: str = "image") -> Embedded:
        cache = None
        if self.cache is not None:
            folder = default_cache_folder() if self.cache == "auto" else Path(self.cache)
            cache = BagCache(folder, cache_setting(backbone, self.view_))
        return embed(images, backbone, self.view_, cache=cache, kind=kind, progress=self.progress)

    def _note_oddities(self) -> None:
        """What a person should know before trusting the groups."""
        copies = self.images_.duplicates()
        if copies:
            count = sum(len(group) - 1 for group in copies)
            are = "are exact copies of others" if count > 1 else "is an exact copy of another"
            self.warnings_.append(f"{count} of the images {are}.")
        if self.normals_ is not None:
            both = len(set(self.images_.digests) & set(self.normals_.digests))
            if both:
                are = "are" if both > 1 else "is"
                self.warnings_.append(f"{both} of the images {are} among the normal ones too.")
            known = len(set(self.normals_.digests))
            if known < FEW_NORMALS:
                few = f"{known} normal image{'s' if known > 1 else ''}"
                self.warnings_.append(f"Only {few}: what is not shown there looks unusual.")

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        passed = time.perf_counter() - start
        self.timings_[stage] = round(self.timings_.get(stage, 0.0) + passed, 3)


def _check_n_clusters(n_clusters: object) -> None:
    if n_clusters == "auto":
        return
    if isinstance(n_clusters, bool) or not isinstance(n_clusters, int | np.integer):
        raise OptionError(f"n_clusters must be 'auto' or a whole number. Got {n_clusters!r}.")
    if n_clusters < 2:
        raise OptionError(f"n_clusters must be at least 2. Got {n_clusters}.")


def _check_random_state(random_state: object) -> None:
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if not whole or random_state < 0:  # type: ignore[operator]
        raise OptionError(f"random_state must be a whole number from 0. Got {random_state!r}.")


def _check_count(n: int, n_clusters: int | str, found: ImageSet | None = None) -> None:
    if n < 2:
        bad = 0 if found is None else len(found.set_aside)
        aside = f"; {bad} {'was' if bad == 1 else 'were'} set aside" if bad else ""
        raise InputError(f"At least 2 usable images are needed to group them. Got {n}{aside}.")
    if isinstance(n_clusters, int | np.integer) and n_clusters > n:
        raise OptionError(
            f"n_clusters must be between 2 and {n} (the number of images). Got {n_clusters}."
        )


def _calibrate(
    scores: NDArray[np.float32], bags: Bags, normals: Bags | None, describer: Describer
) -> HeatScale:
    reference, normal_scores = describer.reference, None
    if normals is not None and isinstance(reference, NormalReference):
        normal_scores = reference.scores_of_normals(normals)
    return calibrate(scores, bags.valid, normal_scores)
