"""AnomalyClusterer: the whole story on one page."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin

from flawsort.advice import Advice, advise
from flawsort.assign import Assignment, assign_embeddings
from flawsort.backbones import DEFAULT_BACKBONE, Backbone, BackboneInfo, load_backbone
from flawsort.cache import BagCache, default_cache_folder
from flawsort.cluster import cut, number_by_size, reorder_leaves, ward_linkage
from flawsort.describe import Describer, fit_describer
from flawsort.embed import Embedded, cache_setting, embed
from flawsort.errors import BackboneError, InputError, OptionError
from flawsort.files import array_images, find_images
from flawsort.heatmaps import HeatScale, calibrate
from flawsort.images import View, measure_window
from flawsort.presets import Method, resolve
from flawsort.records import Bags, ImageSet, Ints, Progress
from flawsort.references import NormalReference

Images: TypeAlias = (
    str | Path | Sequence[str | Path] | NDArray[Any] | Sequence[NDArray[Any]] | ImageSet | Bags
)

# Fewer normal images than this hardly show all that is normal.
FEW_NORMALS = 10


class AnomalyClusterer(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Groups images by the kind of flaw they show.

    n_clusters: the number of groups, or "auto" to take the advice (`advice_`).
    method: "default", "paper", or a `Method` with choices of your own.
    backbone: the name of an embedded backbone, or the path of an ONNX file.
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
        image_size: int | None = None,
        view: View | None = None,
        cache: str | Path | None = "auto",
        random_state: int = 0,
        progress: Progress | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.method = method
        self.backbone = backbone
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
        self.timings_: dict[str, float] = {}
        self.warnings_: list[str] = []
        # Everything runs in the order of the images' content, so that neither the names nor the
        # order of the files can change a result; `order` says where each row is shown.
        bags, order, normals = self._take_in(X, normal)
        _check_count(len(bags), self.n_clusters, self.images_)
        with self._timed("score"):
            self.describer_, described, self.scored_ = fit_describer(
                bags, normals, method, random_state=self.random_state, progress=self.progress
            )
        with self._timed("calibrate"):
            self.heat_ = _calibrate(described.scores, bags, normals, self.describer_)
        with self._timed("cluster"):
            merges = ward_linkage(described.embeddings)
            self.advice_: Advice = advise(
                described.embeddings, merges, random_state=self.random_state
            )
            automatic = self.n_clusters == "auto"
            self.n_clusters_ = self.advice_.k if automatic else int(self.n_clusters)
            labels = cut(merges, self.n_clusters_)
        back = np.argsort(order)
        self.linkage_ = reorder_leaves(merges, order)
        self.labels_ = number_by_size(labels[back])
        self.scores_ = described.scores[back]
        self.weights_ = described.weights[back]
        self.embeddings_ = described.embeddings[back]
        self.valid_ = None if bags.valid is None else bags.valid[back]
        self.grid_ = bags.grid
        return self

    def fit_predict(self, X: Images, y: object = None, *, normal: Images | None = None) -> Ints:
        """As `fit`; returns `labels_`."""
        return self.fit(X, y, normal=normal).labels_

    def predict(self, X: Images) -> Ints:
        """(n,): the group of each new image, -1 for a kind not seen before.

        A file that cannot be used has no row; `assign` says which were.
        """
        return self.assign(X)[1].labels

    def assign(self, X: Images) -> tuple[ImageSet, Assignment, NDArray[np.float32]]:
        """The usable new images, where they belong, and their scores (n, n_patches)."""
        self._check_fitted()
        given = _gather(X)
        if isinstance(given, Bags):
            images, bags = _nameless(given), given
        else:
            embedded = self._embed(given, self._same_backbone(), self.view_, "embedding")
            images, bags = embedded.images, embedded.bags
        fitted = (self.scores_.shape[1], self.n_dims_)
        if bags.patches.shape[1:] != fitted:
            raise InputError(
                "New images must have as many patches and dimensions as those of the fit, "
                f"{fitted}. Got {bags.patches.shape[1:]}."
            )
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
        """Bags in the order of content, where each is shown, and the normal bags."""
        with self._timed("find"):
            images = _gather(X)
            normals = None if normal is None else _gather(normal)
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
        self.images_ = _nameless(bags)
        self.normals_ = None if normals is None else _nameless(normals)
        order = _content_order(self.images_)
        if normals is not None and self.normals_ is not None:
            normals = normals.take(_content_order(self.normals_))
        return bags.take(order), order, normals

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
        with self._timed("embed"):
            canonical = images.take(_content_order(images))
            embedded = self._embed(canonical, backbone, self.view_, "embedding")
            known = None
            if normals is not None:
                ordered = normals.take(_content_order(normals))
                known = self._embed(ordered, backbone, self.view_, "embedding normals")
        place = {name: row for row, name in enumerate(images.names)}
        shown = np.array([place[name] for name in embedded.images.names])
        order = np.argsort(np.argsort(shown))
        self.images_ = embedded.images.take(np.argsort(order))
        self.normals_ = None if known is None else known.images
        self._note_oddities()
        return embedded.bags, order, None if known is None else known.bags

    def _check_fitted(self) -> None:
        if not hasattr(self, "describer_"):
            raise OptionError("This AnomalyClusterer is not fitted yet: call fit or load first.")

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
        return load_backbone(self.backbone, image_size=self.image_size)

    def _embed(self, images: ImageSet, backbone: Backbone, view: View, stage: str) -> Embedded:
        cache = None
        if self.cache is not None:
            folder = default_cache_folder() if self.cache == "auto" else Path(self.cache)
            cache = BagCache(folder, cache_setting(backbone, view))
        return embed(images, backbone, view, cache=cache, stage=stage, progress=self.progress)

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
            known = len(self.normals_)
            if known < FEW_NORMALS:
                few = f"{known} normal image{'s' if known > 1 else ''}"
                self.warnings_.append(f"Only {few}: what is not shown there looks unusual.")

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        passed = time.perf_counter() - start
        self.timings_[stage] = round(self.timings_.get(stage, 0.0) + passed, 3)


def _gather(given: Images) -> ImageSet | Bags:
    """Whatever a user passes as images, found and checked."""
    if isinstance(given, ImageSet | Bags):
        return given
    if isinstance(given, str | Path):
        return find_images(given)
    if isinstance(given, np.ndarray):
        return array_images(given)
    items: list[Any] = list(given)
    if items and all(isinstance(item, str | Path) for item in items):
        return find_images(items)
    return array_images(items)


def _nameless(bags: Bags) -> ImageSet:
    """Bags have no files: their own bytes stand for the content."""
    blank = np.full((1, 1), 128, np.uint8)
    valid = bags.valid if bags.valid is not None else np.empty((len(bags), 0), bool)
    content = [
        bag.tobytes() + mask.tobytes() for bag, mask in zip(bags.patches, valid, strict=True)
    ]
    return ImageSet(
        tuple(f"bag-{row:05d}" for row in range(len(bags))),
        (blank,) * len(bags),
        tuple(hashlib.sha256(one).hexdigest() for one in content),
    )


def _content_order(images: ImageSet) -> NDArray[np.int64]:
    return np.array(sorted(range(len(images)), key=lambda row: images.digests[row]), np.int64)


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
