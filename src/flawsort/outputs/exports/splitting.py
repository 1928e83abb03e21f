"""Which images of a dataset are for validation. What belongs together is on the same side: copies
of an image, photos that nearly repeat another one, and the images of a lot. Otherwise a model is
validated with what it was trained on.

Photos nearly repeat each other if their details do: at 64 x 64 pixels, without what most photos of
the set have in common, and without gradual changes of brightness. docs/evidence/experiments.md,
"Near-duplicates", has what this finds.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.fft import dctn
from scipy.ndimage import gaussian_filter
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from flawsort.core.threads import blocks, in_threads, single_threaded_blas
from flawsort.images.originals import kept_picture
from flawsort.images.view import UnreadableImage, thumbnail
from flawsort.outputs.exports.content import Content, Picture

VALIDATION_SHARE = 0.2
# In pixels: the side of the pictures that are compared, and the width of the blur without which
# they are compared. The least correlation of near-duplicates: in most dev sets at most 2 in 100
# photos are so similar to another one, while JPEG, noise and brightness change a photo less.
SIDE, BLUR = 64, 4.0
ALIKE = 0.9
# A photo with less detail than this, in grey levels, is nothing but noise and repeats no other.
LEAST_DETAIL = 0.5
# What most photos have in common is measured on at most this many of them.
MOST_MEASURED = 1000
# So many coordinates decide first which pairs may be alike.
FIRST = 256
PAIRS_AT_ONCE = 4096


@dataclass(frozen=True)
class Sides:
    """The sides of a dataset. held_out: the rows of the images for validation. repeats: the number
    of images that nearly repeat another one. one_sided: the groups without images for validation,
    since all their images belong together."""

    held_out: frozenset[int]
    repeats: int
    one_sided: tuple[int, ...]


def choose_sides(content: Content, pictures: Sequence[Picture]) -> Sides:
    """The sides of the images of an export."""
    if not pictures:
        return Sides(frozenset(), 0, ())
    keys = copy_keys(content, pictures)
    pairs = alike(details(content, pictures, keys))
    lots = None if content.lots is None else [content.lots[one.row] for one in pictures]
    together = join(keys, pairs, lots)
    groups = [int(content.labelling.labels[one.row]) for one in pictures]
    chosen = split(together, groups)
    held_out = frozenset(
        one.row for one, key in zip(pictures, together, strict=True) if key in chosen
    )
    sides = defaultdict(set)
    for group, key in zip(groups, together, strict=True):
        sides[group].add(key in chosen)
    repeating = {place for pair in pairs for place in pair if keys[pair[0]] != keys[pair[1]]}
    missing = tuple(sorted(group for group, found in sides.items() if True not in found))
    return Sides(held_out, len(repeating), missing)


def copy_keys(content: Content, pictures: Sequence[Picture]) -> list[str]:
    """For each picture, the smallest digest among its copies: files with the same bytes, and files
    with bit-identical embeddings, such as the same image saved in another format."""
    digests, embeddings = content.run.table["sha256"], content.run.embeddings
    vector_of: dict[str, bytes] = {}
    for picture in pictures:
        vector_of.setdefault(digests[picture.row], embeddings[picture.row].tobytes())
    smallest: dict[bytes, str] = {}
    for digest, vector in vector_of.items():
        smallest[vector] = min(digest, smallest.get(vector, digest))
    return [smallest[vector_of[digests[one.row]]] for one in pictures]


def details(
    content: Content, pictures: Sequence[Picture], keys: Sequence[str]
) -> NDArray[np.float16]:
    """(n_pictures, SIDE * SIDE): the details of each picture, of unit length, the coarse ones
    first; zeros for a picture without any. keys: in whose order they are measured, so that the
    names of files do not matter."""
    found = np.stack(list(in_threads(lambda one: _grey(content, one), pictures, ahead=8)))
    order = sorted(range(len(found)), key=lambda place: keys[place])
    measured = found[order[:: -(-len(found) // MOST_MEASURED)]]
    return detail_vectors(found, np.median(measured, axis=0))


def detail_vectors(greys: NDArray[np.float32], usual: NDArray[np.float32]) -> NDArray[np.float16]:
    """(n, SIDE * SIDE): as `details`. greys: (n, SIDE, SIDE). usual: (SIDE, SIDE), what most photos
    have in common."""
    rows, columns = np.indices((SIDE, SIDE))
    coarse_first = np.argsort((rows**2 + columns**2).ravel(), kind="stable")
    vectors = np.empty((len(greys), SIDE * SIDE), np.float16)
    for place, grey in enumerate(greys):
        rest = grey - usual
        rest = rest - gaussian_filter(rest, BLUR, mode="nearest")
        rest -= rest.mean()
        length = float(np.sqrt((rest**2).sum()))
        if length < LEAST_DETAIL * SIDE:
            rest, length = np.zeros_like(rest), 1.0
        vectors[place] = dctn(rest / length, norm="ortho").ravel()[coarse_first]
    return vectors


def alike(vectors: NDArray[np.float16]) -> list[tuple[int, int]]:
    """The pairs of vectors (n, dim), of unit length or zero, with a product of at least ALIKE."""
    head = vectors[:, :FIRST].astype(np.float32)
    # The rest of a product is at most the product of the lengths of the rests.
    rest = np.sqrt(np.maximum(0.0, 1.0 - (head**2).sum(axis=1)))
    rest[~vectors.any(axis=1)] = 0.0
    bounds = np.column_stack([head, rest])
    found: list[tuple[int, int]] = []
    with single_threaded_blas():
        for block in blocks(len(vectors), 1024):
            upper = bounds[block] @ bounds[block.start :].T
            first, second = np.nonzero(np.triu(upper >= ALIKE - 0.005, 1))
            for some in blocks(len(first), PAIRS_AT_ONCE):
                one, other = first[some] + block.start, second[some] + block.start
                products = (vectors[one].astype(np.float32) * vectors[other]).sum(axis=1)
                same = products >= ALIKE
                found += zip(one[same].tolist(), other[same].tolist(), strict=True)
    return found


def join(
    keys: Sequence[str], pairs: Collection[tuple[int, int]], lots: Sequence[str] | None
) -> list[str]:
    """For each picture a key that all pictures have which belong together with it. keys: of
    copies. pairs: places of near-duplicates. lots: of each picture, "" if unknown."""
    names = list(keys)
    edges = [*pairs, *_chains(keys)]
    if lots is not None:
        edges += _chains(lots)
        # The key of a lot does not depend on its images, so more of them change no side.
        names = [
            hashlib.sha256(f"lot {lot}".encode()).hexdigest() if lot else key
            for lot, key in zip(lots, keys, strict=True)
        ]
    n = len(keys)
    one, other = np.array(edges, np.int64).reshape(-1, 2).T
    links = coo_array((np.ones(len(one)), (one, other)), shape=(n, n))
    labels = connected_components(links, directed=False)[1].tolist()
    smallest: dict[int, str] = {}
    for label, name in zip(labels, names, strict=True):
        smallest[label] = min(name, smallest.get(label, name))
    return [smallest[label] for label in labels]


def split(keys: Sequence[str], groups: Sequence[int]) -> set[str]:
    """The keys of the images for validation, about VALIDATION_SHARE of the images.

    keys: (n_images,), hexadecimal and evenly spread, equal for images that belong together. groups:
    (n_images,). A group has images on both sides if its images have two keys; with one they are for
    training. If images of several groups belong together, one of these may lack a side. A key keeps
    its side when others are added, unless a group would lack a side, or less than half or more than
    twice the share of all images would be held out.
    """
    held_out = {key for key in keys if int(key[:8], 16) < VALIDATION_SHARE * 2**32}
    members = {group: set[str]() for group in groups}
    for key, group in zip(keys, groups, strict=True):
        members[group].add(key)
    for own in (*sorted(members.values(), key=lambda own: (len(own), min(own))), set(keys)):
        if own <= held_out:
            held_out.remove(max(own))
        elif len(own) > 1 and not own & held_out:
            held_out.add(min(own))
    _balance(held_out, keys, list(members.values()))
    return held_out


def _balance(held_out: set[str], keys: Sequence[str], members: Sequence[set[str]]) -> None:
    """Move keys to the other side while far too few or too many images are held out, if no group
    then lacks a side."""
    size: dict[str, int] = defaultdict(int)
    for key in keys:
        size[key] += 1
    low, high = VALIDATION_SHARE / 2 * len(keys), VALIDATION_SHARE * 2 * len(keys)
    held = sum(size[key] for key in held_out)
    for key in sorted(held_out, reverse=True):
        others = held_out - {key}
        if held > high and all(own & others for own in members if key in own and len(own) > 1):
            held_out.discard(key)
            held -= size[key]
    for key in sorted(set(size) - held_out):
        more = held_out | {key}
        fits = held + size[key] <= high
        if held < low and fits and not any(own <= more for own in members if key in own):
            held_out.add(key)
            held += size[key]


def _chains(names: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs that link all places with the same name; "" links nothing."""
    last: dict[str, int] = {}
    found = []
    for place, name in enumerate(names):
        if name in last:
            found.append((last[name], place))
        if name:
            last[name] = place
    return found


def _grey(content: Content, picture: Picture) -> NDArray[np.float32]:
    """(SIDE, SIDE): a small grey picture, from the thumbnail of the run if it has one."""
    run, kept = content.run, content.run.thumbnails[picture.row]
    try:
        shown = (
            kept_picture(kept)
            if kept
            else thumbnail(picture.source, run.view, run.input_size, 2 * SIDE)
        )
    except (UnreadableImage, OSError):  # the file is there, but it cannot be decoded any more
        return np.zeros((SIDE, SIDE), np.float32)
    return np.asarray(shown.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX), np.float32)
