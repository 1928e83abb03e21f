"""Converts the results of a fit to a run, and a run back to a fit that can sort new images."""

from __future__ import annotations

import contextlib
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort._version import __version__
from flawsort.backbones import BackboneChoice, BackboneInfo, catalogue, find_network
from flawsort.backbones.base import POOLING_KERNEL
from flawsort.clusters.advice import Advice, Candidate
from flawsort.clusters.placement import centres, place
from flawsort.core.errors import FlawsortError, InputError, RunError
from flawsort.core.records import ImageSet, Ints, RemoteFile, SetAside
from flawsort.embeddings.describer import Describer
from flawsort.embeddings.method import preset_of
from flawsort.fitting.fitted import Fitted
from flawsort.health.checks import examine
from flawsort.health.facts import facts_of
from flawsort.images.view import UnreadableImage, locate
from flawsort.runs.folder import FORMAT_NAME, FORMAT_VERSION
from flawsort.runs.map import two_dimensional_layout
from flawsort.runs.matches import (
    gallery_arrays,
    gallery_digests,
    hot_peers,
    matched_places,
    places_of,
)
from flawsort.runs.model import (
    axes_arrays,
    axes_of,
    describe_axes,
    describe_looks,
    looks_of,
    method_of,
    reference_of,
    view_arrays,
)
from flawsort.runs.pictures import Looked, make_close_ups, make_thumbnails
from flawsort.runs.preview import PAGE, Limits, shown_rows
from flawsort.runs.run import Manifest, Run, source_of
from flawsort.runs.tables import image_flags, images_table, regions_table, source_paths
from flawsort.scores.engines import choose_engine
from flawsort.scores.views import StoredView, stored_views


def make_run(fitted: Fitted, *, limits: Limits = PAGE) -> Run:
    """The results of a fit as a run, ready to be saved or rendered. limits: of the images that have
    pictures."""
    middles = centres(fitted.embeddings, fitted.labels)
    placed = place(fitted.embeddings, fitted.labels, middles)
    flags = image_flags(fitted.images, placed, fitted.looks_normal)
    stored = _stored_views(fitted.describer)
    first = stored[0].reference if stored else None
    of_images, of_regions = matched_places(fitted)
    table = images_table(
        fitted.images, fitted.labels, fitted.image_scores, placed, fitted.kinds, flags, of_images
    )
    boxes = _boxes(fitted)
    shown, places = shown_rows(table, limits), fitted.places
    thumbnails = make_thumbnails(fitted.images, fitted.view, fitted.input_size, shown)
    close_ups, matches = None, None
    if places is not None:
        looked = Looked.of(fitted.images, places.boxes, places.matches, fitted)
        close_ups, matches = make_close_ups(looked, shown)
    return Run(
        manifest=_manifest(fitted),
        table=table,
        regions=regions_table(fitted.images, fitted.regions, boxes, fitted.heat, of_regions),
        region_embeddings=fitted.regions.embeddings,
        scores=fitted.scores,
        valid=fitted.valid,
        weights=fitted.weights,
        embeddings=fitted.embeddings,
        linkage=fitted.linkage,
        layout=_layout(fitted),
        reference=None if first is None else first.patches,
        lists=None if first is None else first.lists,
        whitening=fitted.describer.looks[0].whitening,
        views=_arrays(fitted.describer) or None,
        gallery=gallery_arrays(fitted, None if first is None else first.rows),
        mask=fitted.view.mask_bytes(),
        thumbnails=thumbnails,
        close_ups=close_ups,
        matches=matches,
        health=examine(facts_of(fitted, thumbnails)),
        fetch=_fetched(fitted.images) + _fetched(fitted.normals),
    )


def _fetched(images: ImageSet | None) -> tuple[str, ...]:
    """The URLs of images that the user named."""
    if images is None:
        return ()
    return tuple(one.url for one in images.sources if isinstance(one, RemoteFile) and one.asked)


def _boxes(fitted: Fitted) -> NDArray[np.float64]:
    """(n_regions, 4): left, top, right, bottom of each region in fractions of the upright image."""
    outlines = fitted.regions.outlines
    return located(outlines.boxes(fitted.grid), outlines.images, fitted.images, fitted)


def located_places(boxes: Ints, images: ImageSet, fitted: Fitted) -> NDArray[np.float64]:
    """(n, 4): one place of each image in fractions of the upright image. boxes: (n, 4), in patches:
    top, left, bottom, right."""
    rows, columns = fitted.grid
    fractions = boxes[:, [1, 0, 3, 2]] / [columns, rows, columns, rows]
    return located(fractions, np.arange(len(boxes)), images, fitted)


def located(
    boxes: NDArray[np.float64], rows: Ints, images: ImageSet, fitted: Fitted
) -> NDArray[np.float64]:
    """(n, 4): boxes in fractions of the upright images. boxes: (n, 4), left, top, right, bottom in
    fractions of the view. rows: (n,), the image of each, ascending."""
    found = boxes.copy()
    for row in np.unique(rows):
        own = slice(*np.searchsorted(rows, [row, row + 1]))
        # If the file is gone, the boxes stay as they are in the view.
        with contextlib.suppress(UnreadableImage, OSError):
            source = images.sources[row]
            found[own] = locate(boxes[own], fitted.view, fitted.input_size, source)
    return found


def _layout(fitted: Fitted) -> NDArray[np.float32]:
    """The map, computed in the order of content, so that names do not change it."""
    order = np.array(sorted(range(len(fitted.images)), key=fitted.images.digests.__getitem__))
    laid = np.empty((len(order), 2), np.float32)
    laid[order] = two_dimensional_layout(fitted.embeddings[order], random_state=fitted.random_state)
    return laid


def fitted_of(run: Run, *, device: str | None = None, arithmetic: str | None = None) -> Fitted:
    """The results of the fit of a run, ready to sort new images.

    device, arithmetic: for the comparison of new images, as for AnomalyClusterer. A run does not
    store them, since it may be opened on another machine.
    """
    name = "The run" if run.folder is None else f"The run '{run.folder}'"
    try:
        return _fitted_of(run, device, arithmetic)
    except InputError as error:
        raise RunError(f"{name} is damaged: {error}") from error
    except FlawsortError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"{name} is damaged: missing or invalid in its manifest: {error}."
        ) from error


def _fitted_of(run: Run, device: str | None, arithmetic: str | None) -> Fitted:
    manifest, model = run.manifest, run.manifest["model"]
    describer = _describer(run, device, arithmetic)
    requested = manifest["settings"]["clusters"]
    return Fitted(
        images=run.images,
        normals=_normals(run),
        view=run.view,
        backbones=_backbone_infos(manifest),
        opened=_choices(model),
        describer=describer,
        grid=run.grid,
        scores=run.scores,
        weights=run.weights,
        valid=run.valid,
        embeddings=run.embeddings,
        regions=run.found_regions,
        linkage=np.asarray(run.linkage, np.float64),
        labels=run.labels.copy(),
        n_clusters=run.n_clusters,
        n_clusters_requested=requested if requested == "auto" else int(requested),
        advice=_advice(manifest["clusters"]["advice"]),
        scored=manifest["scored"],
        random_state=manifest["seed"],
        timings=manifest["timings"],
        warnings=tuple(manifest["warnings"]),
        places=places_of(run),
        gallery=gallery_digests(run),
    )


def _describer(run: Run, device: str | None, arithmetic: str | None) -> Describer:
    model = run.manifest["model"]
    method = method_of(model)
    engine = choose_engine(device, arithmetic, exact=method.exact is True)
    return Describer(
        method,
        looks_of(run),
        reference_of(run, method, engine),
        model["temperature"],
        model["spread"],
        run.heat,
        model.get("mean_share", 0.0),
        axes_of(run),
        hot_peers(run),
    )


def _advice(entry: dict[str, Any]) -> Advice:
    candidates = tuple(Candidate(**one) for one in entry["candidates"])
    return Advice(**{**entry, "candidates": candidates})


def _normals(run: Run) -> ImageSet | None:
    """The normal images of a run, by name. Older runs do not store their paths."""
    if not run.manifest["n_normals"]:
        return None
    known = run.manifest["inputs"]["normals"]
    aside = [entry for entry in run.manifest["set_aside"] if entry["kind"] == "normal"]
    blank = np.full((1, 1), 128, np.uint8)
    return ImageSet(
        tuple(entry["name"] for entry in known),
        tuple(
            source_of(entry["path"], run.fetch) if entry.get("path") else blank for entry in known
        ),
        tuple(entry["sha256"] for entry in known),
        tuple(SetAside(entry["name"], entry["reason"]) for entry in aside),
    )


def _arrays(describer: Describer) -> dict[str, NDArray[Any]]:
    """The arrays of the model that a run does not declare itself."""
    arrays = view_arrays(_stored_views(describer), describer.looks)
    return arrays | axes_arrays(describer.axes)


def _stored_views(describer: Describer) -> tuple[StoredView, ...]:
    return () if describer.reference is None else stored_views(describer.reference)


def _choices(model: dict[str, Any]) -> tuple[BackboneChoice, ...]:
    """How the backbones of a run are opened."""
    entries = model.get("views") or [model]  # older runs have one
    return tuple(
        BackboneChoice(
            entry["backbone"],
            entry.get("backbone_weights"),
            entry["image_size"],
            entry.get("grid_side"),
        )
        for entry in entries
    )


def _backbone_infos(manifest: Manifest) -> tuple[BackboneInfo, ...]:
    first = manifest["backbone"]
    if first is None:
        return ()
    return tuple(map(_backbone_info, [first, *manifest.get("beside", [])]))


def _backbone_info(entry: dict[str, Any]) -> BackboneInfo:
    height, width = entry["input_size"]
    return BackboneInfo(
        entry["name"],
        entry["sha256"],
        entry["licence"],
        entry["origin"],
        (height, width),
        entry.get("pooling_kernel", POOLING_KERNEL),  # missing in older runs
        entry.get("grid"),
    )


def _manifest(fitted: Fitted) -> Manifest:
    described = fitted.view.describe()
    method = fitted.describer.method
    mode: str = method.weights
    if method.compares:
        mode = "unsupervised" if fitted.normals is None else "with normals"
    return {
        "format": {"name": FORMAT_NAME, "version": FORMAT_VERSION},
        "flawsort": __version__,
        "mode": mode,
        "n_images": len(fitted.images),
        "n_normals": 0 if fitted.normals is None else len(fitted.normals),
        "seed": int(fitted.random_state),
        "settings": _settings(fitted),
        "scored": fitted.scored,
        "backbone": next(iter(_backbones(fitted)), None),
        "beside": _backbones(fitted)[1:],
        "view": described,
        "grid": list(fitted.grid),
        "clusters": {
            "n_clusters": int(fitted.n_clusters),
            "chosen": "auto" if fitted.n_clusters_requested == "auto" else "given",
            "advice": asdict(fitted.advice),
        },
        "heat": asdict(fitted.heat),
        "model": _model(fitted),
        "warnings": list(fitted.warnings),
        "set_aside": _set_aside(fitted),
        "duplicates": [list(group) for group in fitted.images.duplicates()],
        "inputs": {
            "images": _inputs(fitted.images),
            "normals": [] if fitted.normals is None else _inputs_with_paths(fitted.normals),
        },
        "versions": _versions(),
        "timings": dict(fitted.timings),
    }


def _settings(fitted: Fitted) -> dict[str, Any]:
    """Every option that decided the result, under the name that users know."""
    view = fitted.view.describe()
    preset = preset_of(fitted.describer.method, fitted.opened) or "own"
    requested = fitted.n_clusters_requested
    return {
        "preset": preset,
        "clusters": requested if requested == "auto" else int(requested),
        **{name: value for name, value in asdict(fitted.describer.method).items()},
        "temperature in units of the scores": fitted.describer.temperature,
        "share of the mean patches": fitted.describer.mean_share,
        **view,
        "seed": int(fitted.random_state),
    }


def _backbones(fitted: Fitted) -> list[dict[str, Any]]:
    """The backbone of each view; none if Bags were given."""
    return [
        {**asdict(info), "input_size": list(info.input_size), "dim": look.dim}
        for info, look in zip(fitted.backbones, fitted.describer.looks, strict=False)
    ]


def _model(fitted: Fitted) -> dict[str, Any]:
    """What `assign` needs besides the arrays."""
    describer = fitted.describer
    return {
        "method": asdict(describer.method),
        "reference": None if describer.reference is None else describer.reference.kind,
        "temperature": describer.temperature,
        "spread": describer.spread,
        "mean_share": describer.mean_share,
        "axes": describe_axes(describer.axes),
        "looks": describe_looks(_stored_views(describer), describer.looks),
        "views": [_choice(one) for one in fitted.opened],
    }


def _choice(opened: BackboneChoice) -> dict[str, Any]:
    backbone, weights = str(opened.name), opened.weights
    if backbone not in catalogue() and find_network(backbone) is None:
        backbone = str(Path(backbone).absolute())  # a file: absolute, to be found from any folder
    return {
        "backbone": backbone,
        "backbone_weights": None if weights is None else str(Path(weights).absolute()),
        "image_size": None if opened.image_size is None else int(opened.image_size),
        "grid_side": opened.grid,
    }


def _set_aside(fitted: Fitted) -> list[dict[str, str]]:
    kinds = [("image", fitted.images), ("normal", fitted.normals)]
    return [
        {"name": entry.name, "reason": entry.reason, "kind": kind}
        for kind, images in kinds
        if images is not None
        for entry in sorted(images.set_aside, key=lambda one: one.name)
    ]


def _inputs(images: ImageSet) -> list[dict[str, str]]:
    return [
        {"name": name, "sha256": digest}
        for name, digest in sorted(zip(images.names, images.digests, strict=True))
    ]


def _inputs_with_paths(images: ImageSet) -> list[dict[str, str]]:
    """Of images without a table: their best matching places are shown beside the others."""
    path_of = dict(zip(images.names, source_paths(images), strict=True))
    return [{**entry, "path": path_of[entry["name"]]} for entry in _inputs(images)]


def _versions() -> dict[str, str]:
    names = ("numpy", "scipy", "scikit-learn", "onnxruntime", "pillow")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}
