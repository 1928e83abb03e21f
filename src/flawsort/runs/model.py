"""The fitted model of a run: its arrays and its entries in the manifest, and back.

A run of format 3 has one view, whose scores are not calibrated and which has no mean patches.
Embeddings of older runs of format 4 are not shortened, and expect the nearest normal patch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.core.errors import InputError
from flawsort.embeddings.axes import Axes, MeanPatch, Shortening
from flawsort.embeddings.describer import Look
from flawsort.embeddings.extent import N_EXTENTS, ExtentAxes
from flawsort.embeddings.method import Method
from flawsort.runs.run import Run
from flawsort.scores.engines import Engine
from flawsort.scores.reference import Reference, StoredReference
from flawsort.scores.usual import Usual
from flawsort.scores.views import StoredView, restore_views


def view_arrays(stored: Sequence[StoredView], looks: Sequence[Look]) -> dict[str, NDArray[Any]]:
    """The arrays of all views by name, except those of the first view that a run declares itself:
    its reference, lists and whitening. stored: empty without a reference."""
    found: dict[str, NDArray[Any]] = {}
    for number, look in enumerate(looks):
        own: dict[str, NDArray[Any]] = dict(look.arrays())
        if stored:
            own |= _reference_arrays(stored[number])
        if number == 0:
            own = {name: own[name] for name in own if name not in _DECLARED}
        found |= {_key(number, name): values for name, values in own.items()}
    return found


_CENTRE = "embedding-centre"
# The gallery has the rows of the first view.
_DECLARED = ("reference", "list-centres", "list-offsets", "rows", "whitening")


def _reference_arrays(stored: StoredView) -> dict[str, NDArray[Any]]:
    found: dict[str, NDArray[Any]] = {"reference": stored.reference.patches}
    if stored.reference.lists is not None:
        centres, offsets = stored.reference.lists
        found |= {"list-centres": centres, "list-offsets": offsets}
    if stored.reference.rows is not None:
        found["rows"] = np.asarray(stored.reference.rows, np.int64)
    if stored.usual is not None:
        found["places"] = stored.usual.places
    return found


def _key(number: int, name: str) -> str:
    return f"view-{number}-{name}"


def describe_looks(stored: Sequence[StoredView], looks: Sequence[Look]) -> list[dict[str, Any]]:
    """The entry of each view in the manifest."""
    entries = []
    for number, look in enumerate(looks):
        usual = stored[number].usual if stored else None
        spread = None if usual is None else usual.spread
        tile = None if look.tile is None else list(look.tile)
        entries.append({"grid": list(look.grid), "tile": tile, "dim": look.dim, "spread": spread})
    return entries


def method_of(model: dict[str, Any]) -> Method:
    """The method of a run."""
    fields = {"shorten": 0.0, "expected_normals": 0, **model["method"]}
    if "looks" not in model:
        fields = {**fields, "calibrated": False, "mean_share": 0.0}
    return Method(**fields)


def looks_of(run: Run) -> tuple[Look, ...]:
    """The state of each view."""
    entries = run.manifest["model"].get("looks")
    if entries is None:
        extents = 0 if run.manifest["model"]["axes"] is None else N_EXTENTS
        dim = int(run.embeddings.shape[1]) - extents
        return (Look(run.grid, dim, _single(run.whitening)),)
    return tuple(_look(run, number, entry) for number, entry in enumerate(entries))


def _look(run: Run, number: int, entry: dict[str, Any]) -> Look:
    rows, columns = entry["grid"]
    arrays = _arrays(run, number)
    _check(number, arrays, int(rows) * int(columns), int(entry["dim"]))
    centre, mean = arrays.get("mean-centre"), None
    if centre is not None:
        mean = MeanPatch(np.asarray(centre, np.float32), _single(arrays.get("mean-whitening")))
    whitening = _single(arrays.get("whitening"))
    tile = entry.get("tile")  # missing in older runs, which took a photo of tiles as one image
    return Look(
        (int(rows), int(columns)),
        int(entry["dim"]),
        whitening,
        mean,
        None if tile is None else (int(tile[0]), int(tile[1])),
    )


def _check(number: int, arrays: dict[str, NDArray[Any]], n_patches: int, dim: int) -> None:
    """Refuse arrays of one view that do not belong together, which hashes cannot show."""
    shapes = {
        "places": (n_patches,),
        "whitening": (dim, dim),
        "mean-centre": (dim,),
        "mean-whitening": (dim, dim),
    }
    if "reference" in arrays:
        shapes["reference"] = (*arrays["reference"].shape[:-1], dim)
        shapes["rows"] = arrays["reference"].shape[:1]
    for name, shape in shapes.items():
        if name in arrays and arrays[name].shape != shape:
            raise InputError(
                f"{_key(number, name)} has the shape {arrays[name].shape} instead of {shape}."
            )


def reference_of(run: Run, method: Method, engine: Engine) -> Reference | None:
    """The stored reference for new images."""
    if run.reference is None:
        return None
    model = run.manifest["model"]
    entries = model.get("looks") or [{"spread": None, "grid": None}]
    stored = []
    for number, entry in enumerate(entries):
        arrays = _arrays(run, number)
        for name in ("reference", *(() if entry["spread"] is None else ("places",))):
            if name not in arrays:
                raise InputError(f"{_key(number, name)} is missing.")
        lists = None
        if "list-centres" in arrays:
            lists = (arrays["list-centres"], arrays["list-offsets"])
        places = arrays.get("rows")
        bank_rows = None if places is None else np.asarray(places, np.int64)
        kept = StoredReference(model["reference"], arrays["reference"], lists, bank_rows)
        usual, grid = None, None
        if entry["spread"] is not None:
            usual = Usual(np.asarray(arrays["places"], np.float32), float(entry["spread"]))
            rows, columns = entry["grid"]
            grid = (int(rows), int(columns))
        stored.append(StoredView(kept, usual, grid))
    return restore_views(
        stored,
        nearest_share=method.nearest_share,
        over=method.among_peers,
        expected_normals=method.expected_normals,
        engine=engine,
    )


def describe_axes(axes: Axes | None) -> dict[str, Any] | None:
    """How embeddings are joined, for the manifest. The centre is among the arrays."""
    if axes is None:
        return None
    short = axes.shortening
    return {
        "blocks": axes.blocks,
        "scales": axes.scales,
        "extents": asdict(axes.extents),
        "shortening": short and {"length": short.length, "power": short.power},
    }


def axes_arrays(axes: Axes | None) -> dict[str, NDArray[Any]]:
    """The arrays of the axes by name."""
    if axes is None or axes.shortening is None:
        return {}
    return {_CENTRE: axes.shortening.centre}


def axes_of(run: Run) -> Axes | None:
    """How embeddings are joined."""
    axes, n_columns = run.manifest["model"]["axes"], int(run.embeddings.shape[1])
    if axes is None:
        return None
    if "blocks" not in axes:
        extents = ExtentAxes(tuple(axes["centres"]), tuple(axes["scales"]))
        return Axes((n_columns - N_EXTENTS,), (1.0,), extents)
    extents = ExtentAxes(tuple(axes["extents"]["centres"]), tuple(axes["extents"]["scales"]))
    shortening = None
    if axes.get("shortening"):
        centre = (run.views or {}).get(_CENTRE)
        if centre is None or centre.shape != (n_columns,):
            found = "is missing" if centre is None else f"has the shape {centre.shape}"
            raise InputError(f"{_CENTRE} {found} instead of {(n_columns,)}.")
        values = axes["shortening"]
        shortening = Shortening(
            np.asarray(centre, np.float32), float(values["length"]), float(values["power"])
        )
    return Axes(tuple(axes["blocks"]), tuple(axes["scales"]), extents, shortening)


def _arrays(run: Run, number: int) -> dict[str, NDArray[Any]]:
    """The arrays of one view by name."""
    start = _key(number, "")
    found = {
        name.removeprefix(start): values
        for name, values in (run.views or {}).items()
        if name.startswith(start)
    }
    if number == 0:
        centres, offsets = run.lists or (None, None)
        rows = None if run.gallery is None else run.gallery.get("rows")
        declared = (run.reference, centres, offsets, rows, run.whitening)
        known = zip(_DECLARED, declared, strict=True)
        found |= {name: values for name, values in known if values is not None}
    return found


def _single(values: NDArray[Any] | None) -> NDArray[np.float32] | None:
    return None if values is None else np.asarray(values, np.float32)
