"""The public Python classes: AnomalyClusterer, and the Run that it saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from sklearn.base import BaseEstimator, ClusterMixin

from flawsort.backbones import Backbone, BackboneChoice, BackboneInfo, open_backbone
from flawsort.clusters.assign import Assignment
from flawsort.core.errors import BackboneError, InputError, OptionError
from flawsort.core.records import Bags, Floats, ImageSet, Ints, Progress
from flawsort.embeddings.method import Method, preset_of, resolve, views_of
from flawsort.fitting.assign import are_many, assign_set, check_shapes
from flawsort.fitting.attributes import FittedAttributes
from flawsort.fitting.checks import (
    check_count,
    check_fit_on_ray,
    check_n_clusters,
    check_random_state,
    check_runner,
    check_views,
)
from flawsort.fitting.fit import fit_set
from flawsort.fitting.fitted import Fitted
from flawsort.fitting.memory import USUAL_SIZES, Sizes, parse_size
from flawsort.fitting.options import FitOptions, Stopwatch
from flawsort.fitting.runner import LocalRunner, Runner
from flawsort.fitting.source import FileSource, HeldSource, Source, held_sources, streams
from flawsort.images.inputs import Images, check_found, gather, with_window
from flawsort.images.view import View
from flawsort.outputs import notebook
from flawsort.outputs.exports import export_run
from flawsort.outputs.report import render_report
from flawsort.runs import folder as run_folder
from flawsort.runs import run as run_record
from flawsort.runs.convert import fitted_of, make_run
from flawsort.scores.engines import choose_engine

NO_BAGS_ON_RAY = "'ray' needs images as files or URLs, not as Bags."


class AnomalyClusterer(FittedAttributes, ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Groups images by the kind of flaw they show.

    n_clusters: the number of groups, or "auto" to take the advice (`advice_`).
    method: "default", "fast" (one small network), "paper", or a `Method` of your own.
    backbone: the name of an embedded backbone or of a network of flawsort[torch], or the path of
        an ONNX file; several look at the images side by side. None for those of the method: two
        for "default", one for "fast" and "paper".
    backbone_weights: a file with the first network's weights, which timm otherwise downloads.
    device: where patches are compared and a network runs: "cpu", "cuda" or "cuda:N"; None for a
        GPU if torch sees one. ONNX files of your own run on the CPU.
    arithmetic: precision of the comparison: "int8", "float32" or "bfloat16" on a CPU, "float16",
        "bfloat16", "tf32" or "float32" on a GPU; None for the fastest that is accurate enough.
    image_size: side of the first backbone's square input, if it does not fix it.
    view: how each file is viewed: fit, region of interest, tiles.
    cache: a folder for embedded images, "auto" for the user's cache folder, None for no cache.
    max_memory: the memory limit of a fit, in bytes or as a size such as "4GB". A set that needs
        more is streamed. None streams sets with more than 2 GB of patches.
    runner: "local", or "ray" to distribute `fit` and `assign` over a Ray cluster (flawsort[ray]),
        which always streams.
    address: the Ray cluster; None starts one on this machine.
    n_workers: the number of Ray workers; None for as many as fit.
    parts: a folder or URL that all Ray workers can write to, for finished batches. None keeps them
        in the cache, or in a temporary folder if there is no cache.
    random_state: the seed of all random choices.
    progress: called with the name of a stage, the number of finished items, and their total.

    `fitted_` holds all results of `fit`; these attributes are read from it. In the order of the
    images given: `labels_` (n,), `scores_` and `weights_` (n, n_patches), `embeddings_` (n, dim),
    `linkage_` (n - 1, 4), `valid_` (n, n_patches) or None; `regions_`, the unusual places with the
    group that each resembles, and `kinds_`, for each image its group and the other groups that its
    regions resemble; `looks_normal_` (n,), or None without enough normals. Also: `n_clusters_`,
    `advice_`, `heat_`, `grid_`, `images_` and `normals_` (the images used, and those set aside),
    `scored_` (how images were compared, in words), `timings_`, `warnings_`.
    """

    # The amount of data held in memory at a time.
    sizes: Sizes = USUAL_SIZES
    # The run that a model was loaded from, and the runners whose finished batches are not saved.
    _loaded: tuple[Fitted, run_record.Run] | None = None
    _unsaved: tuple[Runner, ...] = ()

    def __init__(
        self,
        *,
        n_clusters: int | Literal["auto"] = "auto",
        method: str | Method = "default",
        backbone: str | Path | BackboneChoice | Sequence[str | Path | BackboneChoice] | None = None,
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
        known_groups: Mapping[str, int] | None = None,
    ) -> AnomalyClusterer:
        """Group images. X and normal: folders, files, globs or list files; arrays or PIL images; or
        `Bags`.

        known_groups: the group that people gave to some images, by SHA-256. Images of one group
        stay together; images of different groups stay apart. y is ignored, as in every clusterer.
        """
        options = self._options(normal is not None, known_groups)
        check_views(X if isinstance(X, Bags) else self._choices(), options.method)
        limit = None if self.max_memory is None else parse_size(self.max_memory)
        clock, runner = Stopwatch(), None
        with clock("find"):
            images, normals = gather(X), None if normal is None else gather(normal)
        view, choices = self.view or View(), self._choices()
        infos: tuple[BackboneInfo, ...] = ()
        source: Source
        known: Source | None
        if isinstance(images, ImageSet) and not isinstance(normals, Bags):
            source = files = self._files(images, normals, clock)
            good = None if normals is None else replace(files, images=normals, kind="normal")
            known = good
            view, infos = files.view, tuple(one.info for one in files.backbones)
            if self.runner == "ray" or streams(files, good, options.method, limit, self.sizes):
                runner = self._runner(files, choices, many=True)
        elif isinstance(images, Bags) and not isinstance(normals, ImageSet):
            if self.runner == "ray":
                raise OptionError(NO_BAGS_ON_RAY, parameter="runner")
            source, known = held_sources(images, normals)
        else:
            raise InputError("Give images and normals both as files or arrays, or both as Bags.")
        self.fitted_ = fit_set(
            source,
            known,
            options,
            view=view,
            backbones=infos,
            opened=choices,
            runner=runner,
            clock=clock,
        )
        self._unsaved = () if runner is None else (runner,)
        return self

    def fit_predict(self, X: Images, y: object = None, *, normal: Images | None = None) -> Ints:
        """Call `fit` and return `labels_`."""
        return self.fit(X, y, normal=normal).labels_

    def predict(self, X: Images) -> Ints:
        """(n,): the group of each new image, -1 for a new kind.

        An image that cannot be used is an error here, since its row would be missing. `assign`
        sets such an image aside instead.
        """
        images, found, _ = self.assign(X)
        if images.set_aside:
            first = images.set_aside[0]
            raise InputError(
                f"{len(images.set_aside)} of the images cannot be used, the first '{first.name}': "
                f"{first.reason}. Leave them out, or call assign, which sets them aside."
            )
        return found.labels

    def assign(self, X: Images, *, keep_parts: bool = False) -> tuple[ImageSet, Assignment, Floats]:
        """The usable new images, their groups, and their scores (n, n_patches).

        Images are processed in batches, so that there may be any number of them. Only the scores
        stay in memory, in half precision (float16) if `fit` would stream as many images. An image
        of the fit keeps the embedding and scores that it had there. After an interruption the same
        call resumes, if there is a cache. keep_parts: keep the finished batches of many images
        until `discard_parts`, for a caller that stores the results first.
        """
        fitted = self._checked()
        self._check_runner()
        given = gather(X)
        source: Source
        if isinstance(given, Bags):
            if self.runner == "ray":
                raise OptionError(NO_BAGS_ON_RAY, parameter="runner")
            check_shapes(given, fitted.bag_shapes)
            source = HeldSource.of(given)
        else:
            backbones = self._same_backbones(fitted)
            source = FileSource(given, backbones, fitted.view, self.cache, self.progress)
        many = are_many(len(source.contents), fitted.bag_shapes, self.sizes)
        runner = self._runner(source, fitted.opened, many=many)
        found = assign_set(source, fitted, runner, sizes=self.sizes, progress=self.progress)
        if keep_parts:
            self._unsaved += (runner,)
        else:
            runner.clear()
        return found

    def save(self, folder: str | Path, *, overwrite: bool = False, report: bool = True) -> Run:
        """Save the results as a run folder and return the run. report: also write report.html. A
        loaded model saves its run again, without the edits of reviewers."""
        fitted = self._checked()
        run_folder.prepare_output(Path(folder), overwrite=overwrite)
        unchanged = self._loaded is not None and self._loaded[0] is fitted
        run = self._loaded[1] if self._loaded and unchanged else make_run(fitted)
        extra = {run_folder.REPORT: render_report(run)} if report else None
        run_folder.save_run(run, Path(folder), overwrite=overwrite, extra=extra)
        self.discard_parts()
        return Run.of(run, Path(folder))

    def discard_parts(self) -> None:
        """Remove the finished batches from which an interrupted call would resume. `save` does this
        when the results are safe."""
        for runner in self._unsaved:
            runner.clear()
        self._unsaved = ()

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        device: str | None = None,
        arithmetic: str | None = None,
        runner: str = "local",
        address: str | None = None,
        n_workers: int | None = None,
        parts: str | Path | None = None,
    ) -> AnomalyClusterer:
        """The model of a saved run, ready to `assign` and `predict`. A run does not store device,
        arithmetic and runner, so choose them here."""
        return cls.from_run(
            run_folder.open_run(folder),
            device=device,
            arithmetic=arithmetic,
            runner=runner,
            address=address,
            n_workers=n_workers,
            parts=parts,
        )

    @classmethod
    def from_run(
        cls,
        run: run_record.Run,
        *,
        device: str | None = None,
        arithmetic: str | None = None,
        runner: str = "local",
        address: str | None = None,
        n_workers: int | None = None,
        parts: str | Path | None = None,
    ) -> AnomalyClusterer:
        """Like `load`, for a run that is already open."""
        check_runner(runner, address=address, n_workers=n_workers, parts=parts)
        where = _device_on(runner, device)
        fitted = fitted_of(run, device=where, arithmetic=arithmetic)
        preset = preset_of(fitted.describer.method, fitted.opened)
        model = cls(
            n_clusters=fitted.n_clusters,
            method=preset or fitted.describer.method,
            backbone=None if preset else fitted.opened,
            device=device,
            arithmetic=arithmetic,
            runner=runner,
            address=address,
            n_workers=n_workers,
            parts=parts,
            random_state=fitted.random_state,
        )
        model.fitted_, model._loaded = fitted, (fitted, run)
        return model

    def _options(self, normals: bool, known_groups: Mapping[str, int] | None) -> FitOptions:
        """The checked options of `fit`. normals: whether there are any."""
        method = resolve(self.method)
        check_n_clusters(self.n_clusters)
        check_random_state(self.random_state)
        if normals and method.weights == "uniform":
            raise OptionError(
                "'uniform' does not compare images, so normal images have no effect. Leave one of "
                "the two out.",
                parameter="weights",
            )
        device = _device_on(self.runner, self.device)
        exact, limits = method.exact is True, self.sizes.cpu
        engine = choose_engine(device, self.arithmetic, exact=exact, limits=limits)
        self._check_runner()
        if self.runner == "ray":
            check_fit_on_ray(method, normals=normals, max_memory=self.max_memory)
        return FitOptions(
            method,
            engine,
            self.n_clusters,
            known_groups,
            self.random_state,
            self.sizes,
            self.progress,
        )

    def _check_runner(self) -> None:
        check_runner(self.runner, address=self.address, n_workers=self.n_workers, parts=self.parts)

    def _files(self, images: ImageSet, normals: ImageSet | None, clock: Stopwatch) -> FileSource:
        """Measure the window of deep images, if any, and open the backbone."""
        check_found(images)
        check_count(len(images), self.n_clusters, images)
        with clock("find"):
            view = with_window(self.view or View(), images, normals)
        backbones = self._open(self._choices())
        return FileSource(images, backbones, view, self.cache, self.progress)

    def _runner(self, source: Source, choices: tuple[BackboneChoice, ...], *, many: bool) -> Runner:
        """This process, or the workers of a Ray cluster. choices: how the source's backbones are
        opened. many: keep finished batches, store scores and weights in half precision, and cache
        bags only in a folder that the user named."""
        if not isinstance(source, FileSource):
            return LocalRunner(source, half=many, sizes=self.sizes)
        cache = source.cache_folder
        if self.runner != "ray":
            parts = cache / "parts" if cache and many else None
            source = replace(source, keep_bags=not many)
            return LocalRunner(source, parts, half=many, sizes=self.sizes)
        from flawsort.fitting.ray_workers import ray_runner

        return ray_runner(
            backbones=choices,
            setting=source.bag_setting,
            view=source.view,
            parts=self.parts,
            cache=cache,
            device=self.device,
            arithmetic=self.arithmetic,
            address=self.address,
            n_workers=self.n_workers,
        )

    def _same_backbones(self, fitted: Fitted) -> tuple[Backbone, ...]:
        """The backbones of the fit. Patches of different backbones cannot be compared."""
        if not fitted.backbones:
            raise InputError("This model was fitted on Bags: give new images as Bags too.")
        opened = self._open(fitted.opened)
        for backbone, choice, before in zip(opened, fitted.opened, fitted.backbones, strict=True):
            if backbone.info.sha256 != before.sha256:
                raise BackboneError(
                    f"The backbone '{choice.name}' has changed since the fit: its SHA-256 is "
                    f"{backbone.info.sha256}, but the fit recorded {before.sha256}."
                )
            # A later version may pool or average other patches by default.
            backbone.info = replace(
                backbone.info, pooling_kernel=before.pooling_kernel, grid=before.grid
            )
        return opened

    def _choices(self) -> tuple[BackboneChoice, ...]:
        """How the backbones are opened: the one that the user named, or those of the preset."""
        named = self.backbone
        if isinstance(named, str | Path | BackboneChoice):
            named = [named]
        chosen = views_of(self.method) if named is None else tuple(map(_choice, named))
        if not chosen:
            raise OptionError("must name at least one. Got none.", parameter="backbone")
        first, *others = chosen
        if self.image_size is not None:
            first = replace(first, image_size=self.image_size)
        if self.backbone_weights is not None:  # `load_backbone` says what is wrong
            first = replace(first, weights=self.backbone_weights)
        return (first, *others)

    def _open(self, choices: tuple[BackboneChoice, ...]) -> tuple[Backbone, ...]:
        device = _device_on(self.runner, self.device)
        return tuple(open_backbone(choice, device=device) for choice in choices)


def _choice(backbone: str | Path | BackboneChoice) -> BackboneChoice:
    return backbone if isinstance(backbone, BackboneChoice) else BackboneChoice(backbone)


def _device_on(runner: str, device: str | None) -> str | None:
    """The device that compares patches. Ray workers use a GPU only if the caller names one."""
    return "cpu" if runner == "ray" and device is None else device


class Run(run_record.Run):
    """A saved run: all results of one clustering, and the groups as reviewers left them.

    `table` has the columns of images.csv, `regions` those of regions.csv; `labels` (n,) is the
    cluster of each image, `scores` (n, n_patches), `embeddings` (n, dim) and `linkage` (n - 1, 4)
    are as for AnomalyClusterer.
    """

    def __repr__(self) -> str:
        return notebook.text(self)

    def _repr_html_(self) -> str:
        """The groups with thumbnails, for notebooks."""
        return notebook.html(self)

    def to_frame(self) -> Any:
        """One row per image: a pandas DataFrame, or a plain table if pandas is not installed."""
        return notebook.frame(self)

    @property
    def groups(self) -> list[notebook.GroupSummary]:
        """The groups with images, as reviewers left them: name, role, size, typical images."""
        return notebook.groups(self)

    def show(self) -> None:
        """Show the report, in the notebook if this runs in one, otherwise in a browser."""
        notebook.show(self)

    def export(
        self, format: str, path: str | Path, *, link: str = "copy", overwrite: bool = False
    ) -> list[Path]:
        """Write the groups for another tool, as `flawsort export` does. Returns the files written.

        format: "csv", "coco", "yolo", ... link: "copy", "link" or "hardlink" images into folders.
        """
        groups = notebook.labelling_of(self)
        return export_run(self, groups, format, Path(path), link=link, overwrite=overwrite)

    def evaluate(
        self, truth: str | Path | Mapping[str, str] | Sequence[str | None]
    ) -> dict[str, Any]:
        """Compare the clusters with true labels; the run stays as it is.

        truth: a folder whose subfolders are the labels, a CSV file, a mapping from the names of
        images to labels, or one label per image, None if unknown. Returns NMI, ARI, F1 and purity
        for the run's number of clusters, and for the true number in `at_true_k`.
        """
        from flawsort.research.evaluate import evaluate_against

        return evaluate_against(self, truth)

    def model(
        self, *, device: str | None = None, arithmetic: str | None = None
    ) -> AnomalyClusterer:
        """The model of the run, ready to `assign` and `predict`."""
        return AnomalyClusterer.from_run(self, device=device, arithmetic=arithmetic)

    def predict(self, X: Images) -> Ints:
        """(n,): the cluster of each new image, -1 for a new kind."""
        return self.model().predict(X)


def open_run(folder: str | Path) -> Run:
    """Open a saved run. RunError if it is damaged, has another format version, or is not a run."""
    return run_folder.open_run(folder, Run)
