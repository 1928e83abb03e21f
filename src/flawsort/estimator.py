"""The public Python classes: AnomalyClusterer, and the Run that it saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from sklearn.base import BaseEstimator, ClusterMixin

from flawsort.backbones import Backbone, BackboneChoice, BackboneInfo, open_backbone
from flawsort.backbones.base import INPUT_SIZE_OF_PATCHES
from flawsort.clusters.assign import Assignment, Judge
from flawsort.core.errors import BackboneError, InputError, OptionError
from flawsort.core.records import Bags, Floats, ImageSet, Ints, Progress
from flawsort.embeddings.method import Method, preset_of, resolve, views_of
from flawsort.fitting.assign import OnRegions, are_many, assign_set, check_shapes
from flawsort.fitting.checks import (
    check_arithmetic,
    check_count,
    check_examples,
    check_fit_on_ray,
    check_maps,
    check_n_clusters,
    check_normals,
    check_random_state,
    check_runner,
    check_views,
)
from flawsort.fitting.fit import fit_set
from flawsort.fitting.fitted import Fitted
from flawsort.fitting.foresight import Foreseen, foresee, foresee_new, with_tiles
from flawsort.fitting.memory import USUAL_SIZES, Sizes, parse_size
from flawsort.fitting.options import FitOptions, Stopwatch
from flawsort.fitting.runner import LocalRunner, Runner
from flawsort.fitting.source import FileSource, HeldSource, Source, bag_bytes, held_sources
from flawsort.images.budget import BUDGET
from flawsort.images.inputs import Images, check_found, gather, with_window
from flawsort.images.maps import GivenMaps, find_maps
from flawsort.images.view import View
from flawsort.labels.attributes import GroupAttributes, Labels, start_of
from flawsort.labels.newcomers import Arrivals, judge_of, sort_newcomers
from flawsort.labels.regions import settled_regions
from flawsort.labels.start import Start
from flawsort.labels.teach import measured, teach_run
from flawsort.outputs import notebook
from flawsort.outputs.exports import Choices, export_run
from flawsort.outputs.report import render_report
from flawsort.runs import folder as run_folder
from flawsort.runs import run as run_record
from flawsort.runs.convert import fitted_of
from flawsort.scores.engines import choose_engine

NO_BAGS_ON_RAY = "'ray' needs images as files or URLs, not as Bags."


class AnomalyClusterer(GroupAttributes, ClusterMixin, BaseEstimator):  # type: ignore[misc]
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
    view: how each file is viewed: fit, region of interest, tiles. Photos that are much larger than
        the first backbone's input are looked at in tiles, unless the view has some.
    maps: the masks or heat maps of the images, for a method that takes its weights from them: a
        folder of pictures or .npy files that are named as the images, or a mapping from the names
        of images to arrays (height, width).
    cache: a folder for embedded images, "auto" for the user's cache folder, None for no cache.
    max_memory: the memory limit of a fit, in bytes or as a size such as "4GB". A set that needs
        more is streamed, and an image that cannot be decoded within it is set aside. None streams
        sets with more than 2 GB of patches, and decodes within half of the machine's memory.
    runner: "local", or "ray" to distribute `fit` and `assign` over a Ray cluster (flawsort[ray]),
        which always streams.
    address: the Ray cluster; None starts one on this machine.
    n_workers: the number of Ray workers; None for as many as fit.
    parts: a folder or URL that all Ray workers can write to, for finished batches. None keeps them
        in the cache, or in a temporary folder if there is no cache.
    random_state: the seed of all random choices.
    progress: called with the name of a stage, the number of finished items, and their total.
    notice: called with a sentence before large photos are looked at, and before a long exact
        comparison: how, and what it takes.

    `fitted_` holds all results of `fit`; these attributes are read from it. In the order of the
    images given: `labels_` (n,), `scores_` and `weights_` (n, n_patches), `embeddings_` (n, dim),
    `linkage_` (n - 1, 4), `valid_` (n, n_patches) or None; `regions_`, the unusual places with the
    cluster that each resembles, and `kinds_`, for each image its cluster and the others that its
    regions resemble; `places_`, the most unusual place of each image with the best matching place
    of the reference, whose images `gallery_` lists; `looks_normal_` (n,), or None without enough
    normals. The groups that people read, from the labels given (`y`) or from the review of a loaded
    run: `group_names_`, and for each image its place there, `groups_` (n,), and how sure the taught
    model is, `probabilities_` (n,). Without labels they are the clusters. Also: `n_clusters_`,
    `advice_`, `heat_`, `grid_`, `images_` and `normals_` (the images used, and those set aside),
    `scored_` (how images were compared, in words), `timings_`, `warnings_`.
    """

    # The amount of data held in memory at a time.
    sizes: Sizes = USUAL_SIZES
    # The runners whose finished batches are not saved.
    _unsaved: tuple[Runner, ...] = ()
    # The fit whose backbones stay open, and these.
    _held: tuple[Fitted, tuple[Backbone, ...]] | None = None

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
        maps: GivenMaps | None = None,
        cache: str | Path | None = "auto",
        max_memory: str | int | None = None,
        runner: str = "local",
        address: str | None = None,
        n_workers: int | None = None,
        parts: str | Path | None = None,
        random_state: int = 0,
        progress: Progress | None = None,
        notice: Callable[[str], None] | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.method = method
        self.backbone = backbone
        self.backbone_weights = backbone_weights
        self.device = device
        self.arithmetic = arithmetic
        self.image_size = image_size
        self.view = view
        self.maps = maps
        self.cache = cache
        self.max_memory = max_memory
        self.runner = runner
        self.address = address
        self.n_workers = n_workers
        self.parts = parts
        self.random_state = random_state
        self.progress = progress
        self.notice = notice

    def fit(
        self,
        X: Images,
        y: Labels | Start | None = None,
        *,
        normal: Images | None = None,
    ) -> AnomalyClusterer:
        """Group images. X and normal: folders, files, globs or list files; arrays or PIL images; or
        `Bags`.

        y: the labels that are known, any number of them: for each image one label, or None; or a
        mapping from the names of images to labels. "normal", "good" and "ok" mean normal. All
        images with a label are in the group of that name, and teach where the others belong.
        """
        options = self._options(normal is not None)
        check_views(X if isinstance(X, Bags) else self._choices(), options.method)
        with self.within_memory() as limit:
            self._fit(X, y, normal, options, limit)
        return self

    @contextmanager
    def within_memory(self) -> Iterator[int | None]:
        """What looks at files within this block keeps within `max_memory`. Gives that in bytes."""
        limit = None if self.max_memory is None else parse_size(self.max_memory)
        # Until it is known what the set needs, decoding may take all but what every run does.
        self._decoding = None if limit is None else limit - self.sizes.base
        with BUDGET.limited(self._decoding):
            yield limit

    def _fit(
        self,
        X: Images,
        y: Labels | Start | None,
        normal: Images | None,
        options: FitOptions,
        limit: int | None,
    ) -> None:
        """See `fit`. limit: of the memory, in bytes."""
        clock, runner = Stopwatch(), None
        with clock("find"):
            images, normals = gather(X), None if normal is None else gather(normal)
        view, choices = self.view or View(), self._choices()
        infos: tuple[BackboneInfo, ...] = ()
        source: Source
        known: Source | None
        if isinstance(images, ImageSet) and not isinstance(normals, Bags):
            source = files = self._files(images, normals, options.method, clock)
            known = good = (
                None if normals is None else replace(files, images=normals, kind="normal")
            )
            view, infos = files.view, tuple(one.info for one in files.backbones)
            with clock("find"):
                foreseen = self._foreseen(files, good, options, limit)
            options = replace(options, sizes=foreseen.sizes)
            if self.runner == "ray" or foreseen.streamed:
                runner = self._runner(files, choices, foreseen.sizes, many=True)
        elif isinstance(images, Bags) and not isinstance(normals, ImageSet):
            if self.runner == "ray":
                raise OptionError(NO_BAGS_ON_RAY, parameter="runner")
            source, known = held_sources(images, normals)
        else:
            raise InputError("Give images and normals both as files or arrays, or both as Bags.")
        if options.method.takes_maps:
            size = infos[0].input_size if infos else INPUT_SIZE_OF_PATCHES
            kind = options.method.weights
            found = find_maps(self.maps, kind, source.images, view, size)
            options = replace(options, maps=found)
        start = start_of(y, X, source.images)
        if start is not None and start.examples is not None:
            check_examples(options.method)
        with BUDGET.limited(self._decoding):
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
        self._start, self._begun = start, None
        if start is not None:
            self._begun, notes = self._begin(start)
            warnings = (*self.fitted_.warnings, *start.notes, *notes)
            self.fitted_ = replace(self.fitted_, warnings=warnings)

    def fit_predict(
        self,
        X: Images,
        y: Labels | None = None,
        *,
        normal: Images | None = None,
    ) -> Ints:
        """Call `fit` and return `labels_`."""
        return self.fit(X, y, normal=normal).labels_

    def predict(self, X: Images) -> Ints:
        """(n,): the group of each new image as a place in `group_names_`, -1 for a new kind, -2
        for a good image where no group is normal.

        With labels (`y`), or after a review of the run that was loaded, these are the groups that
        were taught; otherwise they are the clusters, as in `labels_`. An image that cannot be used
        is an error here, since its row would be missing. `assign` sets such an image aside instead.
        """
        fitted, named = self._checked(), self._named
        judge = None if named is None else judge_of(named.suggestions, named.space.space)
        images, found, _ = self.assign(X, judge=judge)
        _refuse_set_aside(images)
        if named is None:
            return found.labels
        arrivals = Arrivals.of(images, found)
        sorted_ = sort_newcomers(arrivals, fitted, named.labelling, named.suggestions)
        return self.places_of(sorted_.groups)

    def assign(
        self,
        X: Images,
        *,
        judge: Judge | None = None,
        keep_vectors: int = 0,
        keep_parts: bool = False,
        as_one_of: int = 1,
        on_regions: OnRegions | None = None,
    ) -> tuple[ImageSet, Assignment, Floats]:
        """The usable new images, their groups, and their scores (n, n_patches).

        Images are processed in batches, so that there may be any number of them. Only the scores
        stay in memory, in half precision (float16) if `fit` would stream as many images. An image
        of the fit keeps the embedding and scores that it had there. After an interruption the same
        call resumes, if there is a cache. judge: called with the embeddings (n, dim) of each batch
        and with whether its images look normal (n,); the rows (n, m) that it gives are in `judged`.
        keep_vectors: keep the embeddings of the first so many images in `vectors`. keep_parts: keep
        the finished batches of many images until `discard_parts`, for a caller that stores the
        results first. as_one_of: compare images as if there were at least so many of them: the
        arithmetic depends on that, so what arrives alone is compared as what arrives with others.
        on_regions: called with the digests of each batch and its regions.
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
        sizes = self.sizes
        if fitted.view.layout != (1, 1):
            sizes = sizes.for_photos(bag_bytes(fitted.bag_shapes))
        many = are_many(len(source.contents), fitted.bag_shapes, sizes)
        if self.notice and isinstance(source, FileSource):
            said = foresee_new(source, fitted.bag_shapes, sizes, many=many)
            if said:
                self.notice(said)
        runner = self._runner(source, fitted.opened, sizes, many=many)
        found = assign_set(
            source,
            fitted,
            runner,
            sizes=sizes,
            progress=self.progress,
            judge=judge,
            keep_vectors=keep_vectors,
            as_one_of=as_one_of,
            on_regions=on_regions,
        )
        if keep_parts:
            self._unsaved += (runner,)
        else:
            runner.clear()
        return found

    def save(self, folder: str | Path, *, overwrite: bool = False, report: bool = True) -> Run:
        """Save the results as a run folder and return the run. report: also write report.html. A
        loaded model saves its run again, without the edits of reviewers."""
        place = Path(folder)
        carried = self._may_replace
        with run_folder.prepared_output(place, overwrite=overwrite, carried=carried):
            run = self.make_run()
            run_folder.save_run(
                run,
                place,
                overwrite=overwrite,
                extra={run_folder.REPORT: render_report(run)} if report else None,
                furnish=partial(self.write_groups, run),
                carried=carried,
                hold=partial(self.hold_edits, run),
                prepared=True,
            )
        self.discard_parts()
        return Run.of(run, place)

    def discard_parts(self) -> None:
        """Remove the finished batches from which an interrupted call would resume. `save` does this
        when the results are safe."""
        for runner in self._unsaved:
            runner.clear()
        self._unsaved = ()

    def hold_open(self) -> None:
        """Keep the backbones open for all further calls of `assign` and `predict`, for programs
        that call them often. Opening takes longer than to look at an image."""
        fitted = self._checked()
        self._held = fitted, self._same_backbones(fitted)

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

    def _options(self, normals: bool) -> FitOptions:
        """The checked options of `fit`. normals: whether there are any."""
        method = resolve(self.method)
        check_n_clusters(self.n_clusters)
        check_random_state(self.random_state)
        check_maps(method, self.maps)
        if normals:
            check_normals(method)
        device = _device_on(self.runner, self.device)
        exact, limits = method.exact is True, self.sizes.cpu
        engine = choose_engine(device, self.arithmetic, exact=exact, limits=limits)
        check_arithmetic(method, engine, self.arithmetic)
        self._check_runner()
        if self.runner == "ray":
            check_fit_on_ray(method, normals=normals, max_memory=self.max_memory)
        return FitOptions(
            method,
            engine,
            self.n_clusters,
            self.random_state,
            self.sizes,
            self.progress,
            tell_recall=method.exact is False or self.arithmetic is not None,
        )

    def _embedded(self, images: ImageSet) -> tuple[ImageSet, Floats]:
        used, found, _ = self.assign(images, keep_vectors=len(images))
        assert found.vectors is not None
        return used, found.vectors

    def _check_runner(self) -> None:
        check_runner(self.runner, address=self.address, n_workers=self.n_workers, parts=self.parts)

    def _files(
        self, images: ImageSet, normals: ImageSet | None, method: Method, clock: Stopwatch
    ) -> FileSource:
        """Measure the window of deep images, if any, open the backbones, and choose the tiles."""
        check_found(images)
        check_count(len(images), self.n_clusters, images)
        with clock("find"):
            view = with_window(self.view or View(), images, normals)
        backbones = self._open(self._choices())
        with clock("find"):
            view = with_tiles(view, backbones[0].info.input_size, images, normals, method)
        return FileSource(images, backbones, view, self.cache, self.progress)

    def _foreseen(
        self, files: FileSource, normals: FileSource | None, options: FitOptions, limit: int | None
    ) -> Foreseen:
        """How much is held in memory at a time, and whether the set must be streamed. Says what
        large photos and long comparisons will take."""
        engine = options.engine if self.notice else None
        foreseen = foresee(files, normals, options.method, limit, self.sizes, engine=engine)
        if self.notice and foreseen.sentence:
            self.notice(foreseen.sentence)
        self._decoding = foreseen.decoding
        return foreseen

    def _runner(
        self, source: Source, choices: tuple[BackboneChoice, ...], sizes: Sizes, *, many: bool
    ) -> Runner:
        """This process, or the workers of a Ray cluster. choices: how the source's backbones are
        opened. many: keep finished batches, store scores and weights in half precision, and cache
        bags only in a folder that the user named."""
        if not isinstance(source, FileSource):
            return LocalRunner(source, half=many, sizes=sizes)
        cache = source.cache_folder
        if self.runner != "ray":
            parts = cache / "parts" if cache and many else None
            source = replace(source, keep_bags=not many)
            return LocalRunner(source, parts, half=many, sizes=sizes)
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
        if self._held is not None and self._held[0] is fitted:
            return self._held[1]
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


def _refuse_set_aside(images: ImageSet) -> None:
    if images.set_aside:
        first = images.set_aside[0]
        raise InputError(
            f"{len(images.set_aside)} of the images cannot be used, the first '{first.name}': "
            f"{first.reason}. Leave them out, or call assign, which sets them aside."
        )


def _device_on(runner: str, device: str | None) -> str | None:
    """The device that compares patches. Ray workers use a GPU only if the caller names one."""
    return "cpu" if runner == "ray" and device is None else device


class Run(run_record.Run):
    """A saved run: all results of one clustering, and the groups as decided or suggested.

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
        """The groups with images, as decided or suggested: name, role, size, typical images."""
        return notebook.groups(self)

    def teach(self, labels: Mapping[str, str | None]) -> Run:
        """Decide images, as in the review; the run is returned. labels: by the names of images.
        "normal", "good" and "ok" mean normal; any other label is the name of a group, which is made
        if there is none. Every edit can be undone in the review."""
        teach_run(self, labels)
        return self

    def suggestions(self) -> Any:
        """One row per image: name, group, probability (how sure the taught model is; empty if
        decided or if nothing was taught) and decided. A pandas DataFrame, or a plain table."""
        return notebook.suggestions(self)

    def accuracy(self) -> dict[str, dict[str, float] | None]:
        """How often flawsort was right, measured on what people answered.

        "suggestions": the suggestion just before each answer about one image, and before each label
        of `teach`, compared with it. "audit": the groups of random images, which people answered
        without seeing them. Each has n, share, and the 90% interval from low to high; None below 10
        answers.
        """
        return measured(notebook.state_of(self))

    def show(self) -> None:
        """Show the report, in the notebook if this runs in one, otherwise in a browser."""
        notebook.show(self)

    def export(
        self,
        format: str,
        path: str | Path,
        *,
        link: str = "copy",
        unknown: str | None = None,
        by: str | Path | None = None,
        overwrite: bool = False,
    ) -> list[Path]:
        """Write the groups for another tool, as `flawsort export` does. Returns the files written.

        format: "csv", "coco", "yolo", ... link: "copy", "link" or "hardlink" images into folders.
        unknown: "mark" or "leave-out" regions that show no group; None for what the format usually
        does. by: "day", "week", "month", "folder" or a CSV file: images of a lot are on one side of
        a split into training and validation.
        """
        state = notebook.state_of(self)
        return export_run(
            self,
            state.settled,
            format,
            Path(path),
            probability=state.suggestions.probability,
            regions=settled_regions(self, state),
            choices=Choices(link=link, unknown=unknown, by=by, overwrite=overwrite),
        ).paths

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

    def predict(self, X: Images) -> Any:
        """One row per new image, by what people taught the run: a pandas DataFrame, or a plain
        table if pandas is not installed.

        name; group: a name, "normal" or "new kind"; probability: how sure the model is, empty if
        decided or if nothing was taught; decided: whether a person decided the group of this very
        image; verdict: "OK" or "not OK" once a threshold was chosen in the review. An image that
        cannot be used is an error. `model().predict` gives numbers instead of names.
        """
        state = notebook.state_of(self)
        judge = judge_of(state.suggestions, state.space().space)
        images, found, _ = self.model().assign(X, judge=judge)
        _refuse_set_aside(images)
        arrivals = Arrivals.of(images, found)
        sorted_ = sort_newcomers(arrivals, self, state.labelling, state.suggestions)
        return notebook.predictions(images, sorted_)


def open_run(folder: str | Path, *, fetch: Sequence[str] = ()) -> Run:
    """Open a saved run. RunError if it is damaged, has another format version, or is not a run.
    fetch: the beginnings of URLs from which its images may be read, such as s3://bucket/parts."""
    return run_folder.open_run(folder, Run, fetch=fetch)
