"""A fitted AnomalyClusterer to a run, and back to where it can sort new images."""

from __future__ import annotations

import contextlib
import io
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort._version import __version__
from flawsort.backbones import BackboneInfo, catalogue, find_network
from flawsort.backbones.base import POOLING_KERNEL
from flawsort.clusters.placement import centres, place
from flawsort.core.errors import FlawsortError, RunError
from flawsort.core.records import ImageSet, Ints
from flawsort.core.threads import in_threads
from flawsort.embeddings.describer import Describer
from flawsort.embeddings.extent import ExtentAxes
from flawsort.embeddings.method import PRESETS, Method
from flawsort.embeddings.weights import image_scores
from flawsort.estimator import AnomalyClusterer
from flawsort.images.view import UnreadableImage, View, locate, thumbnail
from flawsort.runs.folder import FORMAT_NAME, FORMAT_VERSION, open_run
from flawsort.runs.map import two_dimensional_layout
from flawsort.runs.preview import shown_rows
from flawsort.runs.run import INPUT_SIZE_OF_PATCHES, Manifest, Run
from flawsort.runs.tables import image_flags, images_table, regions_table
from flawsort.scores.engines import Engine, choose_engine
from flawsort.scores.reference import Reference, StoredReference, restore_reference

# The long side of thumbnails, by the number of images, so that a report stays within tens of
# megabytes.
THUMBNAIL_SIDES = ((500, 256), (1500, 192), (4000, 128))
SMALLEST_THUMBNAIL = 96


def make_run(model: AnomalyClusterer) -> Run:
    """Everything that a fitted model found, ready to be saved or rendered."""
    middles = centres(model.embeddings_, model.labels_)
    placed = place(model.embeddings_, model.labels_, middles)
    flags = image_flags(model.images_, placed, model.image_heat_)
    unusual = image_scores(model.scores_, model.valid_)
    reference = model.describer_.reference
    stored = None if reference is None else reference.stored()
    table = images_table(model.images_, model.labels_, unusual, placed, model.kinds_, flags)
    boxes = _boxes(model)
    return Run(
        manifest=_manifest(model),
        table=table,
        regions=regions_table(model.images_, model.regions_, boxes, model.heat_),
        region_embeddings=model.regions_.embeddings,
        scores=model.scores_,
        valid=model.valid_,
        weights=model.weights_,
        embeddings=model.embeddings_,
        linkage=model.linkage_,
        layout=_layout(model),
        reference=None if stored is None else stored.patches,
        lists=None if stored is None else stored.lists,
        whitening=model.describer_.whitening,
        mask=model.view_.mask_bytes(),
        thumbnails=make_thumbnails(
            model.images_, model.view_, input_size(model), shown_rows(table)
        ),
    )


def _boxes(model: AnomalyClusterer) -> NDArray[np.float64]:
    """(n_regions, 4): left, top, right, bottom of each region in fractions of the upright image."""
    outlines = model.regions_.outlines
    boxes = outlines.boxes(model.grid_)
    size = input_size(model)
    for row in np.unique(outlines.images):
        own = slice(*np.searchsorted(outlines.images, [row, row + 1]))
        # A file that has gone since leaves the boxes as they are in the view.
        with contextlib.suppress(UnreadableImage, OSError):
            boxes[own] = locate(boxes[own], model.view_, size, model.images_.sources[row])
    return boxes


def input_size(model: AnomalyClusterer) -> tuple[int, int]:
    """Height and width of what its backbone is given."""
    return INPUT_SIZE_OF_PATCHES if model.backbone_ is None else model.backbone_.input_size


def _layout(model: AnomalyClusterer) -> NDArray[np.float32]:
    """The map, laid out in the order of content: names must not change it."""
    order = np.array(sorted(range(len(model.images_)), key=model.images_.digests.__getitem__))
    laid = np.empty((len(order), 2), np.float32)
    laid[order] = two_dimensional_layout(model.embeddings_[order], random_state=model.random_state)
    return laid


def load_model(
    folder: str | Path, *, device: str | None = None, arithmetic: str | None = None
) -> AnomalyClusterer:
    """The model of a saved run, ready to `assign` and `predict`.

    device, arithmetic: where and in what it computes, as for AnomalyClusterer. A run does not
    keep them: it may be opened on another machine.
    """
    return rebuild(open_run(Path(folder)), folder, device=device, arithmetic=arithmetic)


def rebuild(
    run: Run, folder: str | Path, *, device: str | None = None, arithmetic: str | None = None
) -> AnomalyClusterer:
    """The model of a run that is open already; folder: its name in error messages."""
    try:
        return _rebuild(run, device, arithmetic)
    except FlawsortError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(
            f"The run '{folder}' is damaged: its manifest lacks or garbles {error}."
        ) from error


def _rebuild(run: Run, device: str | None, arithmetic: str | None) -> AnomalyClusterer:
    manifest, fitted = run.manifest, run.manifest["model"]
    model = AnomalyClusterer(
        n_clusters=run.n_clusters,
        method=Method(**fitted["method"]),
        backbone=fitted["backbone"],
        backbone_weights=fitted.get("backbone_weights"),
        device=device,
        arithmetic=arithmetic,
        image_size=fitted["image_size"],
        random_state=manifest["seed"],
    )
    model.view_ = run.view
    exact = fitted["method"]["exact"] is True
    reference = _reference(run, choose_engine(device, arithmetic, exact=exact))
    axes = fitted["axes"]
    model.describer_ = Describer(
        Method(**fitted["method"]),
        reference,
        fitted["temperature"],
        fitted["spread"],
        run.heat,
        None if run.whitening is None else np.asarray(run.whitening, np.float32),
        None if axes is None else ExtentAxes(tuple(axes["centres"]), tuple(axes["scales"])),
    )
    model.labels_ = run.labels.copy()
    model.embeddings_ = run.embeddings
    model.linkage_ = np.asarray(run.linkage, np.float64)
    model.scores_, model.weights_, model.valid_ = run.scores, run.weights, run.valid
    model.grid_, model.heat_ = run.grid, run.heat
    model.n_clusters_ = run.n_clusters
    model.backbone_ = _backbone_info(manifest["backbone"])
    model.images_ = run.images
    model.regions_ = run.found_regions
    return model


def _reference(run: Run, engine: Engine) -> Reference | None:
    """What new images are compared with, as it was stored."""
    fitted = run.manifest["model"]
    if run.reference is None:
        return None
    stored = StoredReference(fitted["reference"], run.reference, run.lists)
    nearest_share = fitted["method"]["nearest_share"]
    return restore_reference(stored, nearest_share=nearest_share, engine=engine)


def _backbone_info(entry: dict[str, Any] | None) -> BackboneInfo | None:
    if entry is None:
        return None
    height, width = entry["input_size"]
    return BackboneInfo(
        entry["name"],
        entry["sha256"],
        entry["licence"],
        entry["origin"],
        (height, width),
        entry.get("pooling_kernel", POOLING_KERNEL),  # runs made before it was recorded
    )


def _manifest(model: AnomalyClusterer) -> Manifest:
    described = model.view_.describe()
    method = model.describer_.method
    mode = "uniform"
    if method.weights == "auto":
        mode = "unsupervised" if model.normals_ is None else "with normals"
    return {
        "format": {"name": FORMAT_NAME, "version": FORMAT_VERSION},
        "flawsort": __version__,
        "mode": mode,
        "n_images": len(model.images_),
        "n_normals": 0 if model.normals_ is None else len(model.normals_),
        "seed": int(model.random_state),
        "settings": _settings(model),
        "scored": model.scored_,
        "backbone": _backbone(model),
        "view": described,
        "grid": list(model.grid_),
        "clusters": {
            "n_clusters": int(model.n_clusters_),
            "chosen": "auto" if model.n_clusters == "auto" else "given",
            "advice": asdict(model.advice_),
        },
        "heat": asdict(model.heat_),
        "model": _fitted(model),
        "warnings": list(model.warnings_),
        "set_aside": _set_aside(model),
        "duplicates": [list(group) for group in model.images_.duplicates()],
        "inputs": {
            "images": _inputs(model.images_),
            "normals": [] if model.normals_ is None else _inputs(model.normals_),
        },
        "versions": _versions(),
        "timings": model.timings_,
    }


def _settings(model: AnomalyClusterer) -> dict[str, Any]:
    """Every option that decided the result, by the name it has for users."""
    view = model.view_.describe()
    preset = next((name for name, one in PRESETS.items() if one == model.describer_.method), "own")
    return {
        "preset": preset,
        "clusters": model.n_clusters if model.n_clusters == "auto" else int(model.n_clusters),
        **{name: value for name, value in asdict(model.describer_.method).items()},
        "temperature in units of the scores": model.describer_.temperature,
        **view,
        "seed": int(model.random_state),
    }


def _backbone(model: AnomalyClusterer) -> dict[str, Any] | None:
    if model.backbone_ is None:
        return None
    info = asdict(model.backbone_)
    return {**info, "input_size": list(info["input_size"]), "dim": model.n_dims_}


def _fitted(model: AnomalyClusterer) -> dict[str, Any]:
    """What `assign` needs besides the arrays."""
    describer = model.describer_
    backbone = str(model.backbone)
    if backbone not in catalogue() and find_network(backbone) is None:
        backbone = str(Path(backbone).absolute())  # a file, to be found from any folder
    weights = model.backbone_weights
    return {
        "method": asdict(describer.method),
        "reference": None if describer.reference is None else describer.reference.kind,
        "temperature": describer.temperature,
        "spread": describer.spread,
        "axes": None if describer.axes is None else asdict(describer.axes),
        "backbone": backbone,
        "backbone_weights": None if weights is None else str(Path(weights).absolute()),
        "image_size": None if model.image_size is None else int(model.image_size),
    }


def _set_aside(model: AnomalyClusterer) -> list[dict[str, str]]:
    kinds = [("image", model.images_), ("normal", model.normals_)]
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


def _versions() -> dict[str, str]:
    names = ("numpy", "scipy", "scikit-learn", "onnxruntime", "pillow")
    return {"python": platform.python_version(), **{name: version(name) for name in names}}


def make_thumbnails(
    images: ImageSet, view: View, size: tuple[int, int], rows: Ints
) -> tuple[bytes, ...]:
    """A JPEG for each of the rows, empty for the other images. size: of the backbone's input."""
    side = next((side for most, side in THUMBNAIL_SIDES if len(rows) <= most), SMALLEST_THUMBNAIL)

    def make(row: int) -> bytes:
        content = io.BytesIO()
        try:
            picture = thumbnail(images.sources[row], view, size, side)
        except (UnreadableImage, OSError):  # the file has gone since it was embedded
            picture = thumbnail(np.full((8, 8), 128, np.uint8), View(), size, side)
        picture.save(content, "JPEG", quality=82)
        return content.getvalue()

    made = dict(zip(rows.tolist(), in_threads(make, rows.tolist(), ahead=8), strict=True))
    return tuple(made.get(row, b"") for row in range(len(images)))
