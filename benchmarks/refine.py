"""Measure whether a small head, trained on the images of one run, groups better than the default.

    python benchmarks/refine.py --data DIR [--data DIR ...] [--only SET ...] [--results FILE]
        [--preset default] [--modes none normals] [--images N] [--normals N] [--cache DIR]

Multiple-instance deep clustering, which the paper names as future work. The head (refine_head.py)
is trained on Ward's clusters of the run, without any label: see there. Its answers are put beside
the embeddings of the run, with a share of their spread, and Ward's tree is made again.

NMI is at the true number of kinds (an oracle, as in the paper) and leaves out `combined`: the mean
over cuts of random subsets of 90% of the images, and its standard error. The head is trained once,
on the whole set. `less` is the mean difference from the default on the same subsets, with its own
standard error. alone: the head's answers without the embeddings. s: the seconds of the training.

Then comes, with at least two sets, what a choice between the default and the shares by the mean
over all other sets gives on the set left out. --images and --normals limit a set to a random
sample. --results keeps every finished row in FILE; rows that are there already are not measured
again with the same source code, so an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import refine_head
from flawsort import AnomalyClusterer
from flawsort.core.grids import shared_out
from flawsort.core.records import Bags, Floats, Ints
from flawsort.embeddings.method import PRESETS
from flawsort.fitting.runner import rows_of
from flawsort.research.truth import LabelledSet
from flawsort.scores.reference import NormalReference, PeerReference, Reference
from flawsort.scores.views import references_of
from foreground import bags_of
from health_faults import drawn
from quality import load_sets, subset_nmis
from quality_results import append_json, read_json, source_version
from quality_tables import MODE_WORDS, MODES, Figures, mean, number, print_choices
from refine_head import Seen, beside, learnt, main_axes, side_by_side

# The heaviest patches of each view that the head sees, and the main axes of patches and wholes.
PATCHES = 64
PATCH_AXES = 32
WHOLE_AXES = 64
# Axes of patches are measured on this many of them.
MEASURED_PATCHES = 20_000
DEFAULT = "default"
SHARES = {"share .3": 0.3, "share .5": 0.5}
ALONE = "alone"


@dataclass(frozen=True, kw_only=True)
class Row:
    """The NMI of a set over each subset, by the name of the setting."""

    set: str
    mode: str
    preset: str
    images: int
    normals: int
    subsets: int
    version: str
    seconds: float
    found: dict[str, list[float]]

    def is_of(self, identity: dict[str, object]) -> bool:
        return all(getattr(self, name) == value for name, value in identity.items())


def residuals(
    bags: Bags, reference: Reference, chosen: Ints, self_rows: Ints
) -> NDArray[np.float32]:
    """(n, n_chosen, dim): what sets chosen patches (n, n_chosen) of one view apart from the
    reference. self_rows: (n,), the peer that an image is itself, or -1."""
    picked = np.take_along_axis(bags.patches, chosen[..., None], axis=1)
    if isinstance(reference, NormalReference):
        expected = reference.compare(bags).expected(np.arange(len(bags)), chosen)
    else:
        assert isinstance(reference, PeerReference)
        expected = reference.engine.expected_from_peers(
            bags.patches, chosen, reference.peers, self_rows
        )
    return picked.astype(np.float32) - expected


def seen_of(model: AnomalyClusterer, bags: Bags) -> Seen:
    """What a head sees of the images of a model that was fitted on bags."""
    fitted = model.fitted_
    describer, outlines = fitted.describer, fitted.regions.outlines
    assert describer.reference is not None
    peers = {digest: row for row, digest in enumerate(fitted.gallery)}
    normals = isinstance(references_of(describer.reference)[0], NormalReference)
    self_rows = rows_of(fitted.images.digests, {} if normals else peers)
    regions = np.full(fitted.scores.shape, -1)
    for number_of, cells in enumerate(outlines[one] for one in range(len(outlines))):
        regions[outlines.images[number_of], cells] = number_of
    patches, weights, view, region = [], [], [], []
    parts = zip(describer.looks, bags.views, references_of(describer.reference), strict=True)
    for place, (look, one, reference) in enumerate(parts):
        moved = fitted.weights
        if one.grid != bags.grid:
            moved = shared_out(fitted.weights, bags.grid, one.grid)
        moved = np.asarray(moved, np.float64)
        chosen = np.argsort(-moved, axis=1, kind="stable")[:, :PATCHES]
        apart = residuals(one, reference, chosen, self_rows)
        apart = apart if look.whitening is None else apart @ look.whitening
        patches.append(_along_axes(apart))
        own = np.take_along_axis(moved, chosen, axis=1)
        weights.append(own / own.sum(axis=1, keepdims=True))
        view += [place] * chosen.shape[1]
        region.append(np.take_along_axis(regions, _first_cells(chosen, one.grid, bags.grid), 1))
    wholes = _wholes(np.asarray(fitted.embeddings, np.float64), _columns(model, len(bags.views)))
    return Seen(
        wholes,
        side_by_side(patches),
        np.concatenate(weights, axis=1),
        np.array(view),
        np.concatenate(region, axis=1),
    )


def _along_axes(apart: Floats) -> NDArray[np.float64]:
    """(n, n_patches, at most PATCH_AXES): residuals along their main axes, as they are seen from
    the reference."""
    rows = apart.reshape(-1, apart.shape[2])
    some = np.random.default_rng(0).permutation(len(rows))[:MEASURED_PATCHES]
    _, axes = main_axes(rows[np.sort(some)], PATCH_AXES)
    return np.asarray(apart @ axes, np.float64)


def _first_cells(chosen: Ints, grid: tuple[int, int], first: tuple[int, int]) -> Ints:
    """The patches of the first view at the middle of patches of another grid."""
    down, across = np.divmod(chosen, grid[1])
    rows = (2 * down + 1) * first[0] // (2 * grid[0])
    return np.asarray(rows * first[1] + (2 * across + 1) * first[1] // (2 * grid[1]))


def _columns(model: AnomalyClusterer, n_views: int) -> list[NDArray[np.int64]]:
    """The columns of an embedding that belong to each view: pooled patches, and mean patches."""
    axes = model.fitted_.describer.axes
    assert axes is not None
    blocks = np.split(np.arange(sum(axes.blocks)), np.cumsum(axes.blocks)[:-1])
    return [np.concatenate(blocks[view::n_views]) for view in range(n_views)]


def _wholes(embeddings: NDArray[np.float64], of_view: Sequence[Ints]) -> NDArray[np.float64]:
    """(1 + n_views, n, dim): see Seen."""
    mean_of, axes = main_axes(embeddings, WHOLE_AXES)
    found = [embeddings]
    for view in range(len(of_view)):
        left = embeddings.copy()
        for other, columns in enumerate(of_view):
            if other != view:
                left[:, columns] = mean_of[columns]
        found.append(left)
    return np.stack([(one - mean_of) @ axes for one in found])


def measure(
    data: LabelledSet, bags: Bags, normals: Bags | None, preset: str, subsets: int
) -> tuple[dict[str, list[float]], float]:
    """The NMI over subsets of the default, of each share and of the head alone, and the seconds
    that the head took."""
    model = AnomalyClusterer(method=preset, n_clusters=2).fit(bags, normal=normals)
    embeddings = np.asarray(model.embeddings_, np.float64)
    start = time.perf_counter()
    found = learnt(seen_of(model, bags), embeddings)
    seconds = time.perf_counter() - start
    vectors = {DEFAULT: embeddings}
    vectors |= {name: beside(embeddings, found, share) for name, share in SHARES.items()}
    vectors[ALONE] = found
    nmis = {name: subset_nmis(one, data.labels, subsets) for name, one in vectors.items()}
    return nmis, seconds


def measure_all(sets: Sequence[LabelledSet], options: argparse.Namespace) -> list[Row]:
    """Print and return a row for each set and mode, a stored one if there is one."""
    stored = [] if options.results is None else read_json(options.results, Row)
    rows, version = [], own_version()
    for data in sets:
        bags = None
        for mode in options.modes:
            normals = data.normals if mode == "normals" else None
            if mode == "normals" and normals is None:
                continue
            identity: dict[str, object] = {
                "set": data.name,
                "mode": mode,
                "preset": options.preset,
                "images": len(data.images),
                "normals": 0 if normals is None else len(normals),
                "subsets": options.subsets,
                "version": version,
            }
            row = next((one for one in stored if one.is_of(identity)), None)
            if row is None:
                bags = bags or bags_of(data.images, options.preset, options.cache)
                known = normals and bags_of(normals, options.preset, options.cache)
                found, seconds = measure(data, bags, known, options.preset, options.subsets)
                row = Row(**identity, seconds=seconds, found=found)  # type: ignore[arg-type]
                if options.results is not None:
                    append_json(options.results, row)
            rows.append(row)
            print(line_of(row), flush=True)
    return rows


def own_version() -> str:
    """That of flawsort, and of the head."""
    files = [Path(refine_head.__file__), Path(__file__)]
    own = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    return f"{source_version()}+{own[:12]}"


def line_of(row: Row) -> str:
    """A row of the table, under the header."""
    cells = [f"{row.set:<13} {row.mode:<7} {row.images:>6}", with_error(row.found[DEFAULT])]
    for name in SHARES:
        cells += [with_error(row.found[name]), with_error(less(row, name), signed=True)]
    cells += [with_error(row.found[ALONE]), f"{row.seconds:>5.1f}"]
    return "  ".join(cells)


def less(row: Row, name: str) -> NDArray[np.float64]:
    """(n_subsets,): how much better a setting is than the default."""
    return np.subtract(row.found[name], row.found[DEFAULT])


def with_error(values: Sequence[float] | NDArray[np.float64], *, signed: bool = False) -> str:
    """The mean and its standard error."""
    middle = float(np.mean(values))
    sign = "+" if signed and middle >= 0 else ""
    error = float(np.std(values) / np.sqrt(len(values)))
    return f"{sign + number(middle):>5} +- {number(error)}"


def print_means(rows: Sequence[Row]) -> None:
    """The means over the sets, and in how many of them each share is better and worse by more than
    two standard errors."""
    for mode in dict.fromkeys(row.mode for row in rows):
        some = [row for row in rows if row.mode == mode]
        cells = [f"{name} {number(mean(np.mean(row.found[name]) for row in some))}"
                 for name in (DEFAULT, *SHARES, ALONE)]  # fmt: skip
        print(f"\nMeans, {MODE_WORDS[mode]}, {len(some)} sets: {', '.join(cells)}.")
        for name in SHARES:
            clear = [
                float(np.mean(gain)) / max(float(np.std(gain) / np.sqrt(len(gain))), 1e-12)
                for gain in (less(row, name) for row in some)
            ]
            better, worse = sum(one > 2 for one in clear), sum(one < -2 for one in clear)
            print(f"{name}: better by two standard errors on {better}, worse on {worse}.")


def figures_of(rows: Sequence[Row]) -> dict[str, Figures]:
    """By mode, what the choice is made between: the mean of each setting on each set."""
    found: dict[str, Figures] = {}
    for row in rows:
        by_name = found.setdefault(row.mode, {})
        for name in (DEFAULT, *SHARES):
            by_name.setdefault(name, {})[row.set] = float(np.mean(row.found[name]))
    return {mode: found[mode] for mode in MODES if mode in found}


def limited(data: LabelledSet, most: int | None, most_normals: int | None) -> LabelledSet:
    """A random sample of a set."""
    if most is not None and most < len(data.images):
        data = data.take(drawn(data.images, most))
    if data.normals is not None and most_normals is not None:
        data = replace(data, normals=data.normals.take(drawn(data.normals, most_normals)))
    return data


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, action="append", required=True)
    parser.add_argument("--only", nargs="+", default=[], metavar="SET", help="sets by their names")
    parser.add_argument("--preset", choices=[name for name in PRESETS if name != "paper"],
                        default="default")  # fmt: skip
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--subsets", type=int, default=20)
    parser.add_argument("--images", type=int, help="at most this many images of a set")
    parser.add_argument("--normals", type=int, help="at most this many normals of a set")
    parser.add_argument("--results", type=Path, help="file that keeps finished rows")
    parser.add_argument("--cache", default="auto", help="folder for embedded images")
    options = parser.parse_args(arguments)
    sets = [
        limited(one, options.images, options.normals)
        for one in load_sets(options.data, options.only)
    ]
    print("NMI at the true number of kinds (an oracle), without `combined`.")
    heads = "  ".join(f"{name:>13}  {'less':>13}" for name in SHARES)
    print(f"{'set':<13} {'mode':<7} {'images':>6}  {DEFAULT:>13}  {heads}  {ALONE:>13}  {'s':>5}")
    rows = measure_all(sets, options)
    print_means(rows)
    print_choices(figures_of(rows))


if __name__ == "__main__":
    main()
