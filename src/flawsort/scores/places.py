"""The best matching place: where the images of a reference show what surrounds an unusual place.

The unusual patches themselves match badly everywhere, or match another image with the same flaw. So
a place is recognised by what lies around it: a few patches of its surroundings propose where they
have seen the like, and the proposal whose surroundings match best as a whole is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.core.grids import Grid
from flawsort.core.records import Bags, Bools, Floats, Ints
from flawsort.core.threads import in_threads, single_threaded_blas

# A place is a box of patches with this many patches around it on each side.
AROUND = 3
# It is recognised by at most this many rows and columns of patches, evenly spread.
SPREAD = 5
# The box itself is left out, if this many of them lie around it.
LEAST_AROUND = 8
# What another place must be more similar, for each diagonal of the image that it lies away.
FAR = 0.05
# Among peers, which are compared one by one, this many are looked at.
PEERS_LOOKED_AT = 24

# A function of image rows (n,), of one box of patches of each (n, 4): top, left, bottom, right, and
# of the patches of the reference's images that are unusual themselves (n_reference, n_patches) or
# None. It returns (n, 3): the best matching image of the reference, or -1, and how many patches
# down and across the place lies from the box.
Match: TypeAlias = Callable[[Ints, Ints, Bools | None], NDArray[np.int64]]

NOWHERE = (-1, 0, 0)


def nowhere(images: Ints, boxes: Ints, hot: Bools | None) -> NDArray[np.int64]:
    """The Match of a reference whose images are not known."""
    return np.tile(np.array(NOWHERE), (len(images), 1))


@dataclass(frozen=True)
class BankPlaces:
    """Where the patches of a bank come from. rows: (n_bank,), the image of each patch * n_patches +
    its place there. n_patches: of an image."""

    rows: Ints
    n_patches: int

    @cached_property
    def _sorted(self) -> tuple[Ints, NDArray[np.int64]]:
        order = np.argsort(self.rows, kind="stable")
        return self.rows[order], order

    def find(self, wanted: Ints) -> tuple[NDArray[np.int64], Bools]:
        """The positions in the bank of patches given as in `rows`, and which of them it holds."""
        rows, order = self._sorted
        at = np.searchsorted(rows, wanted).clip(max=len(rows) - 1)
        return order[at], rows[at] == wanted

    def of_images(self, count: int) -> NDArray[np.int64]:
        """(count, n_patches): the positions in the bank of the patches of this many images, evenly
        spread; all images if there are fewer. A patch that the bank lacks, as it is padding or was
        not drawn, is replaced by another one of its image."""
        images = np.unique(self.rows // self.n_patches)
        chosen = np.linspace(0, len(images) - 1, min(count, len(images))).round().astype(np.int64)
        wanted = images[chosen][:, None] * self.n_patches + np.arange(self.n_patches)
        at, known = self.find(wanted)
        first = known.argmax(axis=1)
        return np.where(known, at, np.take_along_axis(at, first[:, None], axis=1))


def match_in_bank(bags: Bags, index: Ints, bank: Floats, places: BankPlaces) -> Match:
    """The Match of a bank of patches. index: (n_images, n_patches), the patch of the bank that is
    nearest to each patch of the bags."""

    def match(images: Ints, boxes: Ints, hot: Bools | None) -> NDArray[np.int64]:
        def look(one: int) -> NDArray[np.int64]:
            seen = _Surroundings.of(bags, int(images[one]), boxes[one])
            found = places.rows[index[images[one], seen.patches]]
            proposed = seen.proposals(*np.divmod(found, places.n_patches))
            wanted = proposed[:, :1] * places.n_patches + seen.moved(proposed)
            at, known = places.find(wanted)
            return seen.best(proposed, bank[at], known, hot)

        return _all(look, len(images))

    return match


def match_among_peers(bags: Bags, peers: Floats, self_rows: Ints) -> Match:
    """The Match of peers (n_peers, n_patches, dim). self_rows: (n_images,), the peer that is the
    image itself, or -1."""

    def match(images: Ints, boxes: Ints, hot: Bools | None) -> NDArray[np.int64]:
        def look(one: int) -> NDArray[np.int64]:
            seen = _Surroundings.of(bags, int(images[one]), boxes[one])
            others = [row for row in range(len(peers)) if row != self_rows[images[one]]]
            others = others[:PEERS_LOOKED_AT]
            if not others:
                return np.array(NOWHERE)
            cells = seen.near(bags.tile)
            proposed = [
                seen.proposals(np.full(len(seen.patches), row), cells[nearest])
                for row, nearest in zip(others, seen.nearest(peers, others, cells), strict=True)
            ]
            together = np.unique(np.concatenate(proposed), axis=0)
            patches = peers[together[:, :1], seen.moved(together)]
            return seen.best(together, patches, None, hot)

        return _all(look, len(images))

    return match


@dataclass(frozen=True)
class _Surroundings:
    """What is around a box of patches in one image.

    box: top, left, bottom, right. at: (n, 2), row and column of the patches that it is recognised
    by. patches: (n,), their numbers. vectors: (n, dim), the patches themselves.
    """

    grid: Grid
    box: Ints
    at: NDArray[np.int64]
    vectors: NDArray[np.float32]

    @classmethod
    def of(cls, bags: Bags, image: int, box: Ints) -> _Surroundings:
        at = recognised_by(box, bags.grid)
        numbers = at[:, 0] * bags.grid[1] + at[:, 1]
        if bags.valid is not None and bags.valid[image, numbers].any():
            at = at[bags.valid[image, numbers]]
            numbers = at[:, 0] * bags.grid[1] + at[:, 1]
        return cls(bags.grid, box, at, bags.patches[image, numbers].astype(np.float32))

    @property
    def patches(self) -> NDArray[np.int64]:
        numbers: NDArray[np.int64] = self.at[:, 0] * self.grid[1] + self.at[:, 1]
        return numbers

    def near(self, tile: Grid | None) -> NDArray[np.int64]:
        """The patches among which a place is looked for in a peer: all of them, or in a photo of
        several tiles as many as one tile has, around the same place."""
        everywhere = np.arange(self.grid[0] * self.grid[1])
        if tile is None:
            return everywhere
        top, left, bottom, right = self.box.tolist()
        middle = ((top + bottom) // 2, (left + right) // 2)
        down, across = np.divmod(everywhere, self.grid[1])
        far_down, far_across = abs(down - middle[0]), abs(across - middle[1])
        found: NDArray[np.int64] = everywhere[
            (far_down <= tile[0] // 2) & (far_across <= tile[1] // 2)
        ]
        return found

    def nearest(
        self, peers: Floats, chosen: Iterable[int], cells: Ints
    ) -> Iterable[NDArray[np.int64]]:
        """For each of the chosen peers (n,): which of the cells is nearest to each patch."""
        whole = len(cells) == peers.shape[1]
        for row in chosen:
            peer = peers[row] if whole else peers[row, cells]
            yield (self.vectors @ peer.astype(np.float32).T).argmax(axis=1)

    def proposals(self, images: Ints, patches: Ints) -> NDArray[np.int64]:
        """(n, 3): images, and how far down and across the place would lie there, from where each
        patch was found; and the same place in these images. Those beyond the border are left
        out."""
        found = np.stack(np.divmod(patches, self.grid[1]), axis=1)
        moves = np.concatenate([found - self.at, np.zeros_like(self.at)])
        together = np.column_stack([np.tile(images, 2), moves])
        low = np.minimum(self.box[:2], self.at.min(axis=0))
        high = np.maximum(self.box[2:], self.at.max(axis=0) + 1)
        inside = (low + moves >= 0) & (high + moves <= np.array(self.grid))
        return np.unique(together[inside.all(axis=1)], axis=0)

    def moved(self, proposed: Ints) -> NDArray[np.int64]:
        """(n_proposed, n): the patches that lie in the place of the own ones."""
        moves = proposed[:, 1:] @ np.array([self.grid[1], 1])
        there: NDArray[np.int64] = self.patches + moves[:, None]
        return there

    def best(
        self, proposed: Ints, there: Floats, known: Bools | None, hot: Bools | None
    ) -> NDArray[np.int64]:
        """(3,): the proposal with the most similar surroundings. there: (n_proposed, n, dim), what
        they show. known: (n_proposed, n), which of these are known; None for all. hot: as for
        Match."""
        similar = np.einsum("nd,pnd->pn", self.vectors, there.astype(np.float32))
        if known is None:
            value = similar.mean(axis=1)
        else:
            counts = known.sum(axis=1)
            value = np.where(known, similar, 0).sum(axis=1) / np.maximum(counts, 1)
            value[counts < counts.max() / 2] = -np.inf
        far = np.hypot(*proposed[:, 1:].T) / np.hypot(*self.grid)
        value = value - FAR * far
        if hot is not None:
            value = value - 4.0 * np.array([self._is_hot(one, hot) for one in proposed])
        chosen: NDArray[np.int64] = proposed[int(value.argmax())]
        return chosen

    def _is_hot(self, proposal: Ints, hot: Bools) -> bool:
        """Whether the place is unusual in that image, too."""
        image, down, across = proposal.tolist()
        top, left, bottom, right = self.box.tolist()
        whole = hot[image].reshape(self.grid)
        return bool(whole[top + down : bottom + down, left + across : right + across].any())


def recognised_by(box: Ints, grid: Grid) -> NDArray[np.int64]:
    """(n, 2): row and column of the patches by which a box (4,) of patches is recognised: those
    around it, or all where the box leaves nothing around it."""
    down = _spread(max(0, int(box[0]) - AROUND), min(grid[0], int(box[2]) + AROUND))
    across = _spread(max(0, int(box[1]) - AROUND), min(grid[1], int(box[3]) + AROUND))
    at = np.stack(np.meshgrid(down, across, indexing="ij"), axis=-1).reshape(-1, 2)
    outside = ((at < box[:2]) | (at >= box[2:])).any(axis=1)
    return at[outside] if outside.sum() >= LEAST_AROUND else at


def _spread(start: int, stop: int) -> NDArray[np.int64]:
    """At most SPREAD of the whole numbers from start to stop, without stop."""
    return np.unique(np.linspace(start, stop - 1, min(SPREAD, stop - start)).round().astype(int))


def _all(look: Callable[[int], NDArray[np.int64]], n: int) -> NDArray[np.int64]:
    with single_threaded_blas():
        return np.array(list(in_threads(look, range(n))), np.int64).reshape(n, 3)
