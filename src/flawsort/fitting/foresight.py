"""What a fit will take, known before it starts: how images are looked at, how much memory it needs,
for large photos about how long it takes and what looking at them whole would save, and about how
long an exact comparison takes."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from flawsort.backbones import Backbone
from flawsort.backbones.embed import frames_at_once
from flawsort.backbones.patches import patch_embeddings
from flawsort.core.records import ImageSet, RemoteFile
from flawsort.core.text import pluralise, shown_size
from flawsort.core.threads import n_threads
from flawsort.embeddings.method import EMBEDDINGS, Method
from flawsort.fitting.memory import USUAL_SIZES, Need, Sizes, must_stream
from flawsort.fitting.source import FileSource, Shapes, needed
from flawsort.images.budget import BUDGET
from flawsort.images.tiles import (
    about_shrunk,
    photo_size,
    photo_sizes,
    shrunk,
    shrunk_each,
    tiles_for,
)
from flawsort.images.view import View
from flawsort.scores.engines import Engine
from flawsort.scores.nearest import search_flop
from flawsort.scores.peer_statistics import MinOverPeers

# Comparing and describing photos takes about as long as embedding them, so this much in all:
# measured on 10 photos of 24 megapixels with 8 normals, less with fewer tiles.
IN_ALL = 2.0
# An exact comparison is foretold if it takes more seconds than this.
LONG = 30.0
# Every machine does more operations a second; how fast it is, is measured only for more work.
SLOWEST = 1e10
# The images that are compared with as many others to measure how fast that is.
MEASURED_IMAGES = 4
# The bytes of a photo that is being decoded, for each of its pixels: as read, half way, and on the
# canvas. The same run took 2.6 GB.
DECODING = 16


@dataclass(frozen=True)
class Foreseen:
    """What a fit will take. sizes: how much it holds at a time. streamed: whether it must be
    streamed. sentence: for people, about large photos and long exact comparisons; "" for others.
    decoding: the bytes that a limit leaves for decoding images; None without a limit."""

    sizes: Sizes
    streamed: bool = False
    sentence: str = ""
    decoding: int | None = None


def with_tiles(
    view: View,
    size: tuple[int, int],
    images: ImageSet,
    normals: ImageSet | None,
    method: Method,
) -> View:
    """The view with the tiles that the sizes of images and normals ask for, unless it has some.

    size: of the first backbone's input. Without calibrated scores, as in the paper, and without
    comparisons, images are always looked at whole.
    """
    if view.tiles is not None:
        return view
    photo = None
    if method.calibrated and method.compares:
        photo = photo_size(images.sources + (() if normals is None else normals.sources), view)
    return replace(view, tiles=(1, 1) if photo is None else tiles_for(photo, size))


def foresee(
    source: FileSource,
    normals: FileSource | None,
    method: Method,
    limit: int | None,
    sizes: Sizes = USUAL_SIZES,
    *,
    engine: Engine | None = None,
) -> Foreseen:
    """What a fit will take. limit: of the memory, in bytes. engine: compares patches; if it is
    given, the time of large photos and of a large exact comparison is measured too, which takes a
    moment."""
    photo = None
    if source.view.layout != (1, 1):
        known = () if normals is None else normals.images.sources
        photo = photo_size(source.images.sources + known, source.view)
    start = time.perf_counter()
    found = needed(
        source, normals, method, sizes, decoding=0 if photo is None else decoding_bytes(photo)
    )
    if found is None:
        return Foreseen(sizes, decoding=BUDGET.given)
    need, all_pairs = found
    if limit is not None and photo is not None and need.streamed > limit:
        # One photo at a time, while others wait.
        need = replace(need, decoding=need.decoding // n_threads())
    streamed = must_stream(need, limit, all_pairs=all_pairs)
    left = None
    if limit is not None:
        left = limit + need.decoding - (need.streamed if streamed else need.in_memory)
        left -= _canvases(source)
    sentence = ""
    if photo is None and engine is not None:
        sentence = _foretell_all(engine, method, need)
    if photo is not None and engine is not None:
        opening = time.perf_counter() - start  # decodes one photo, and embeds one tile of it
        each = tile_seconds(source.backbones)
        seconds = (max(0.0, opening - each), each)
        sentence = _sentence(source, photo, need, seconds, streamed=streamed)
    return Foreseen(need.sizes, streamed, sentence, left)


def _sentence(
    source: FileSource,
    photo: tuple[int, int],
    need: Need,
    seconds: tuple[float, float],
    *,
    streamed: bool,
) -> str:
    """photo: height and width. seconds: to decode a photo, and to embed a tile in all views, with
    one thread of this machine."""
    rows, columns = source.view.layout

    def lasting(n_tiles: int) -> str:
        return _lasting(need.n_images + need.n_normals, n_tiles, seconds)

    whole = replace(need, shapes=tuple((n // (rows * columns), dim) for n, dim in need.shapes))
    less = shrunk(photo, source.backbones[0].info.input_size, (1, 1))
    return (
        f"Photos of {photo[0]:,} x {photo[1]:,} pixels: looked at in {rows} x {columns} tiles. "
        f"About {lasting(rows * columns)} and "
        f"{shown_size(need.streamed if streamed else need.in_memory)} of memory. "
        f"--fit stretch would shrink them {less:.1f} times and not see small flaws, in about "
        f"{lasting(1)} and {shown_size(whole.in_memory)}."
    )


def _lasting(n_images: int, n_tiles: int, seconds: tuple[float, float]) -> str:
    each = seconds[0] + n_tiles * seconds[1]
    return duration(IN_ALL * n_images * each / n_threads())


def foresee_new(
    source: FileSource, shapes: Shapes, limits: Sizes = USUAL_SIZES, *, many: bool
) -> str:
    """A sentence about what it takes to look at new photos in the tiles of a run; "" without tiles.
    It takes a moment. shapes: of a bag in each view. many: whether they are streamed."""
    photo = None
    if source.view.layout != (1, 1):
        photo = photo_size(source.images.sources, source.view)
    if photo is None:
        return ""
    start = time.perf_counter()
    replace(source, view=replace(source.view, tiles=(1, 1))).first_bag()
    opening = time.perf_counter() - start
    each = tile_seconds(source.backbones)
    n, (rows, columns) = len(source.contents), source.view.layout
    need = Need(n, 0, shapes, sizes=limits, decoding=decoding_bytes(photo))
    lasting = _lasting(n, rows * columns, (max(0.0, opening - each), each))
    return (
        f"Photos of {photo[0]:,} x {photo[1]:,} pixels: looked at in {rows} x {columns} tiles, as "
        f"the images of the run. About {lasting} and "
        f"{shown_size(need.streamed if many else need.in_memory)} of memory."
    )


def note_on_shrunk(images: ImageSet, view: View, size: tuple[int, int]) -> str:
    """A sentence about new images that are much larger than what a run sees of them, and what to
    do; "" if there are none. size: of the first backbone's input. Of a URL the size is not asked
    for: that would be a request for each image."""
    here = [row for row, one in enumerate(images.sources) if not isinstance(one, RemoteFile)]
    times = np.zeros(len(images))
    sizes = photo_sizes([images.sources[row] for row in here], view)
    times[here] = shrunk_each(sizes, size, view.layout)
    said = about_shrunk(images.names, times)
    return f"{said} Sort them into a run of images of this size." if said else ""


def _foretell_all(engine: Engine, method: Method, need: Need) -> str:
    """What is to say about the exact comparisons of a set, of scores and of distances."""
    halves = (need.n_images - 1) / 2

    def work(each: float) -> list[tuple[float, tuple[int, int]]]:
        return [
            (need.n_images * each * search_flop(n_patches, n_patches, dim), (n_patches, dim))
            for n_patches, dim in need.shapes
        ]

    said = []
    if method.exact is True and method.compares:
        said.append(foretell(engine, work(need.n_normals or need.n_peers or halves)))
    if method.distance != EMBEDDINGS:
        # Never approximate, whatever the scores are.
        single = engine.in_single_precision()
        doing = "Distances between images are computed"
        said.append(foretell(single, work(halves), doing=doing, approximate=False))
    return " ".join(one for one in said if one)


def foretell(
    engine: Engine,
    work: Sequence[tuple[float, tuple[int, int]]],
    *,
    doing: str = "Patches are compared",
    approximate: bool = True,
) -> str:
    """A sentence about exact comparisons that take long; "" if they do not.

    work: pairs of an amount of work, in floating-point operations, and (n_patches, dim) of the bags
    that are compared. doing: what is done. approximate: whether it can be approximate instead.
    """
    if sum(flop for flop, _ in work) <= LONG * SLOWEST:
        return ""
    seconds = sum(flop / comparing_rate(engine, *shape) for flop, shape in work if flop)
    if seconds <= LONG:
        return ""
    said = f"{doing} exactly ({engine.name}), which takes about {duration(seconds)}."
    if not approximate:
        return said
    return f"{said} --approximate is faster, and then the results say how much of it is right."


def comparing_rate(engine: Engine, n_patches: int, dim: int) -> float:
    """The operations a second with which an engine compares bags, measured on random ones."""
    count = max(MEASURED_IMAGES, n_threads())
    values = np.random.default_rng(0).standard_normal((count, n_patches, dim), np.float32)
    values /= np.linalg.norm(values, axis=2, keepdims=True)
    bags, others = values.astype(np.float16), values[:MEASURED_IMAGES].astype(np.float16)
    best = math.inf
    for _ in range(2):  # the first call may prepare things
        start = time.perf_counter()
        engine.fold_references(bags, others, MinOverPeers(count, n_patches))
        best = min(best, time.perf_counter() - start)
    return count * len(others) * search_flop(n_patches, n_patches, dim) / max(best, 1e-9)


def _canvases(source: FileSource) -> int:
    """The bytes of the canvases of photos in tiles, which threads hold beside what they decode."""
    if source.view.layout == (1, 1):
        return 0
    high, wide = source.view.canvas(source.backbones[0].info.input_size)
    return n_threads() * high * wide * (3 if source.view.window is None else 12)


def decoding_bytes(photo: tuple[int, int]) -> int:
    """The memory of the photos that are decoded at a time."""
    return n_threads() * DECODING * photo[0] * photo[1]


def tile_seconds(backbones: tuple[Backbone, ...]) -> float:
    """The seconds that one thread takes for a tile in all views, measured."""
    total = 0.0
    for backbone in backbones:
        count = frames_at_once(backbone)
        frames = np.full((count, 3, *backbone.info.input_size), 0.5, np.float32)
        best = math.inf
        for _ in range(2):  # the first call may prepare things
            start = time.perf_counter()
            maps = backbone.feature_maps(frames)
            patch_embeddings(maps, backbone.info.pooling_kernel, backbone.info.grid)
            best = min(best, time.perf_counter() - start)
        # A network on a GPU serves all threads.
        threads = n_threads() if hasattr(backbone, "batch_frames") else 1
        total += threads * best / count
    return total


def duration(seconds: float) -> str:
    """Seconds in words, rounded."""
    if seconds < 90:
        return pluralise(max(1, round(seconds)), "second")
    if seconds < 90 * 60:
        return f"{round(seconds / 60)} minutes"
    return f"{seconds / 3600:.1f} hours"
