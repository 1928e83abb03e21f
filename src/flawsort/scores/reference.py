"""References, which patches are compared with: normals, or the other images of the set (peers)."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bags, Floats, Ints, Progress
from flawsort.scores.engines import CpuEngine, Engine
from flawsort.scores.inverted_lists import (
    InvertedLists,
    build_lists,
    distances_to_others,
    highest,
)
from flawsort.scores.nearest import Nearest, search_flop
from flawsort.scores.peer_statistics import (
    MaxOverPeers,
    MeanOverNearestPeers,
    MeanOverPeers,
    MinOverPeers,
    PeerStatistic,
)
from flawsort.scores.peer_tiles import compare_by_tile, expected_by_tile, pair_flop
from flawsort.scores.places import BankPlaces, Match, match_among_peers, match_in_bank, nowhere
from flawsort.scores.recall import (
    Measure,
    Recall,
    recall_among_peers,
    recall_in_bank,
    recalls_all,
)

# The largest bank of normal patches. More patches are sampled.
BANK_BYTES = 512 * 2**20
# Scores are calibrated on this many normals, each compared with the others. With fewer than
# MIN_CALIBRATION normals they are calibrated on the set itself.
CALIBRATION_IMAGES = 16
MIN_CALIBRATION = 8
# The comparison is exact if it takes at most this share of the engine's limit for exact search.
CALIBRATION_SHARE = 0.05
# Residuals from peers use this many of them, and a run that was not streamed stores this many for
# `assign`.
STORED_PEERS = 96
# In a set of up to this many images, all other images are peers. In a larger one the peers are a
# sample (Eq. 7), so that time grows with the number of images and not of pairs. On the dev sets 128
# peers gave the same results as all (docs/evidence/performance.md).
ALL_PEERS_UP_TO = 256
SAMPLED_PEERS = 128


@dataclass(frozen=True)
class PeerCounts:
    """How many images of a set are peers.

    all_up_to: in a set of up to this many images, all others are. sampled: the peers of a larger
    set. stored: those that residuals use, and that a run stores if it was not streamed.
    """

    all_up_to: int = ALL_PEERS_UP_TO
    sampled: int = SAMPLED_PEERS
    stored: int = STORED_PEERS


PEER_COUNTS = PeerCounts()

Expected: TypeAlias = Callable[[Ints, Ints], NDArray[np.float32]]


@dataclass(frozen=True)
class Comparison:
    """Images compared with a reference.

    scores: (n_images, n_patches), how unusual each patch is. expected: a function of image rows
    (n_rows,) and chosen patches of these images (n_rows, n_chosen). It returns what the reference
    shows in their place, (n_rows, n_chosen, dim). how: a description of the comparison, for the
    run. views: the comparison of each view, if there are several or scores are calibrated. match:
    finds the best matching place of the reference. recall: measures an approximate comparison on
    the highest-scoring patches of a sample.
    """

    scores: NDArray[np.float32]
    expected: Expected
    how: str
    views: tuple[Comparison, ...] = ()
    match: Match = nowhere
    recall: Measure = recalls_all

    @property
    def by_view(self) -> tuple[Comparison, ...]:
        """The comparison of each view."""
        return self.views or (self,)


@dataclass(frozen=True)
class StoredReference:
    """The part of a reference that a run stores; see `restore_reference`.

    kind: the kind of reference. patches: the patches to compare with. lists: the centres and
    offsets of the inverted lists that the patches are sorted by, if the search was approximate.
    rows: where each patch of normals comes from, as in BankPlaces; None if that is not known.
    """

    kind: str
    patches: Floats
    lists: tuple[Floats, Ints] | None = None
    rows: Ints | None = None


class Reference(Protocol):
    """What the patches of images are compared with.

    engine: the arithmetic that compares them.
    """

    engine: Engine

    @property
    def kind(self) -> str:
        """Its name in a saved run."""

    @property
    def knows_normal(self) -> bool:
        """Whether it contains only normal images. Among peers, a faint flaw may look normal."""

    def compare(
        self, bags: Bags, *, self_rows: Ints | None = None, progress: Progress | None = None
    ) -> Comparison:
        """Compare images with the reference. self_rows: (n_images,), the row of the reference that
        is the image itself, or -1 for none; None if all images are new."""

    def for_many(self, n_images: int, n_patches: int) -> Reference:
        """The same reference for this many images in batches. All batches are compared in the same
        way, whatever their size. n_patches: of each image."""

    def stored(self) -> StoredReference:
        """What a run stores: everything that determines a comparison except the engine."""


class NormalReference:
    """The patches of known-normal images, all together (Eq. 6)."""

    kind = "normals"
    knows_normal = True

    def __init__(
        self,
        bank: Floats,
        *,
        exact: bool | None = None,
        lists: InvertedLists | None = None,
        engine: Engine | None = None,
        random_state: int = 0,
        bank_bytes: int = BANK_BYTES,
        rows: Ints | None = None,
        expected_normals: int = 0,
    ) -> None:
        """bank: (n_bank, dim), unit length. exact: whether the search is exact; None decides at the
        first comparison, and all later ones follow it. True also makes calibration exact. lists:
        the bank for approximate search, if it is already built. engine: None for the CPU in
        float32. bank_bytes: the largest bank that is made of normals without sampling them. rows:
        where each patch of the bank comes from, as in BankPlaces; None if that is not known.
        expected_normals: what is expected in place of a patch is the mean of its nearest patch in
        each of this many normals; 0 for the nearest patch of the bank."""
        self.bank = bank
        self.engine = engine or CpuEngine()
        self.exact = exact
        self._always_exact = exact is True
        self._lists = lists
        self._random_state = random_state
        self._bank_bytes = bank_bytes
        self._rows = rows
        self._expected_normals = expected_normals
        self._some_normals: NDArray[Any] | None = None

    @classmethod
    def from_bags(
        cls,
        normals: Bags,
        *,
        exact: bool | None = None,
        engine: Engine | None = None,
        random_state: int = 0,
        bank_bytes: int = BANK_BYTES,
        expected_normals: int = 0,
    ) -> NormalReference:
        """A bank of all valid patches of the normals. It is sampled if it exceeds `bank_bytes`,
        unless `exact` is True. expected_normals: as for the constructor."""
        limit = None if exact is True else _bank_limit(normals, bank_bytes)
        rows = _bank_rows(normals, random_state, limit)
        bank = normals.patches.reshape(-1, normals.dim)
        bank = bank if len(rows) == len(bank) else bank[rows]
        return cls(
            bank,
            exact=exact,
            engine=engine,
            random_state=random_state,
            bank_bytes=bank_bytes,
            rows=rows,
            expected_normals=expected_normals,
        )

    def compare(
        self, bags: Bags, *, self_rows: Ints | None = None, progress: Progress | None = None
    ) -> Comparison:
        """Score patches by the distance to the nearest normal patch. self_rows: ignored."""
        queries = bags.patches.reshape(-1, bags.dim)
        self.choose_search(len(queries))
        if self.exact:
            found = self.engine.nearest_in_bank(queries, self.bank, progress=progress)
            way = f"exactly ({self.engine.searched_by})"
        else:
            found = self._search_lists(queries, bags, progress)
            way = "approximately (inverted lists; the highest-scoring patches exactly)"
        how = f"compared with {len(self.bank):,} known-good patches, searched {way}"
        shape = bags.patches.shape[:2]
        scores, index = found.distances.reshape(shape), found.index.reshape(shape)

        def expected(images: Ints, chosen: Ints) -> NDArray[np.float32]:
            normals = self._normals_expected(bags)
            if normals is None:
                rows = np.take_along_axis(index[images], chosen, axis=1)
                return self.bank[rows].astype(np.float32)
            nobody = np.full(len(images), -1)
            return self.engine.expected_from_peers(bags.patches[images], chosen, normals, nobody)

        match: Match = nowhere
        if self._rows is not None:
            match = match_in_bank(bags, index, self.bank, BankPlaces(self._rows, bags.n_patches))

        def recall(random_state: int) -> Recall | None:
            if self.exact and self.engine.searches_in_single_precision:
                return None
            return recall_in_bank(bags, scores, index, self.bank, random_state)

        return Comparison(scores, expected, how, match=match, recall=recall)

    def _normals_expected(self, bags: Bags) -> NDArray[Any] | None:
        """(n_normals, n_patches, dim): the normals that tell what is expected; None if the nearest
        patch of the bank does, as for photos in tiles: comparing all tiles would take long."""
        if not self._expected_normals or self._rows is None or bags.tile is not None:
            return None
        if self._some_normals is None:
            places = BankPlaces(self._rows, bags.n_patches)
            self._some_normals = self.bank[places.of_images(self._expected_normals)]
        return self._some_normals

    def _search_lists(self, queries: Floats, bags: Bags, progress: Progress | None) -> Nearest:
        found = self.lists.search(queries, progress=progress)
        top = highest(found.distances.reshape(len(bags), -1), bags.valid)
        rows = (np.arange(len(bags))[:, None] * bags.n_patches + top).ravel()
        return self.lists.search_again(found, rows, queries)

    def choose_search(self, n_queries: int) -> None:
        """Decide by the number of queries whether the search is exact, unless already decided."""
        if self.exact is None:
            flop = search_flop(n_queries, len(self.bank), self.bank.shape[1])
            self.exact = flop <= self.engine.exact_flop

    def for_many(self, n_images: int, n_patches: int) -> NormalReference:
        """Itself, after the choice between exact and approximate search for all comparisons."""
        self.choose_search(n_images * n_patches)
        return self

    def stored(self) -> StoredReference:
        """The bank, sorted by its inverted lists if the search was approximate."""
        if self.exact:
            return StoredReference(self.kind, self.bank, rows=self._rows)
        lists = self.lists
        rows = None if self._rows is None else self._rows[lists.order]
        return StoredReference(self.kind, lists.patches, (lists.centres, lists.offsets), rows)

    def scores_of_normals(self, normals: Bags) -> NDArray[np.float32] | None:
        """(n_sample, n_patches): the scores of normals compared with the other normals.

        normals: the bags that the bank was made from. Returns None if there are too few.
        """
        if len(normals) < MIN_CALIBRATION:
            return None
        order = np.random.default_rng(self._random_state).permutation(len(normals))
        sample = np.sort(order[:CALIBRATION_IMAGES])
        pair = search_flop(normals.n_patches, normals.n_patches, normals.dim)
        few = len(sample) * len(normals) * pair <= CALIBRATION_SHARE * self.engine.exact_flop
        if self._always_exact or (self.exact and few):
            # The minimum over the other images is the distance to the nearest patch of them all.
            nearest = MinOverPeers(len(sample), normals.n_patches)
            scores = self.engine.fold_references(
                normals.patches[sample], normals.patches, nearest, self_rows=sample
            )
        else:
            scores = self._scores_from_lists(normals, sample)
        known = np.isfinite(scores)
        if normals.valid is not None:
            known &= normals.valid[sample]
        return np.where(known, scores, np.nan).astype(np.float32)

    def _scores_from_lists(self, normals: Bags, sample: Ints) -> NDArray[np.float32]:
        # The same rows as in the bank: all of them if the search is exact.
        limit = _bank_limit(normals, self._bank_bytes)
        kept = None if len(self.bank) > limit else limit
        owner = _bank_rows(normals, self._random_state, kept) // normals.n_patches
        queries = normals.patches[sample].reshape(-1, normals.dim)
        images = np.repeat(sample, normals.n_patches)
        distances = self.lists.search(queries, not_from=(images, owner)).distances
        # As in every other image, since their scores are compared.
        valid = None if normals.valid is None else normals.valid[sample]
        top = highest(distances.reshape(len(sample), -1), valid)
        again = (np.arange(len(sample))[:, None] * normals.n_patches + top).ravel()
        distances[again] = distances_to_others(queries[again], images[again], self.bank, owner)
        return distances.reshape(len(sample), -1)

    @property
    def lists(self) -> InvertedLists:
        """The bank as inverted lists, for approximate search. Built on first use."""
        if self._lists is None:
            self._lists = build_lists(self.bank, random_state=self._random_state)
        return self._lists


def _bank_limit(normals: Bags, bank_bytes: int) -> int:
    return int(bank_bytes // (normals.dim * normals.patches.itemsize))


def _bank_rows(normals: Bags, random_state: int, limit: int | None) -> NDArray[np.int64]:
    """The rows of the bank's patches among the patches of all normals. limit: of their number."""
    rows = np.arange(len(normals) * normals.n_patches)
    if normals.valid is not None:
        rows = rows[normals.valid.ravel()]
    if limit is not None and len(rows) > limit:
        rows = rows[np.sort(np.random.default_rng(random_state).permutation(len(rows))[:limit])]
    return rows


class PeerReference:
    """A sample of the images of a set, for comparisons without normals."""

    kind = "peers"
    knows_normal = False

    def __init__(
        self,
        peers: Floats,
        nearest_share: float,
        *,
        engine: Engine | None = None,
        counts: PeerCounts = PEER_COUNTS,
        rows: Ints | None = None,
        over: str = "mean",
    ) -> None:
        """peers: (n_peers, n_patches, dim). nearest_share, over: see compare_with_peers. counts:
        the number of peers that residuals use. rows: (n_peers,), which of the images that were
        compared they are; None for the first ones."""
        self.peers = peers
        self.rows = np.arange(len(peers)) if rows is None else rows
        self._counts = counts
        self.engine = engine or CpuEngine()
        self._nearest_share = nearest_share
        self._over = over

    def compare(
        self, bags: Bags, *, self_rows: Ints | None = None, progress: Progress | None = None
    ) -> Comparison:
        """Compare images with the sample. self_rows: (n_images,), the peer that is the image
        itself, or -1 for none; None if all images are new."""
        n_peers = len(self.peers)
        itself = np.full(len(bags), -1) if self_rows is None else self_rows
        among = n_peers if self_rows is None else n_peers - 1
        engine = self.engine.for_work(len(bags) * n_peers * pair_flop(bags))

        def fold(patches: Floats, cells: Ints, report: Progress | None) -> NDArray[np.float32]:
            peers = self.peers if len(cells) == self.peers.shape[1] else self.peers[:, cells]
            statistic = _statistic(len(bags), len(cells), among, self._nearest_share, self._over)
            return engine.fold_references(
                patches, peers, statistic, self_rows=itself, progress=report
            )

        scores = compare_by_tile(bags, fold, progress)

        def expected(images: Ints, chosen: Ints) -> NDArray[np.float32]:
            few = self.peers[: self._counts.stored]
            mine = np.where(itself < len(few), itself, -1)
            return expected_by_tile(engine, bags, images, chosen, few, mine[images])

        how = f"{n_peers} images of the run as peers ({engine.name})"
        if self_rows is not None:
            how = f"compared with a sample of {n_peers} of them ({engine.name})"
        match = match_among_peers(bags, self.peers, itself)

        def recall(random_state: int) -> Recall | None:
            if engine.single_precision:
                return None
            statistic = partial(
                _statistic, n_peers=among, nearest_share=self._nearest_share, over=self._over
            )
            return recall_among_peers(bags, scores, self.peers, itself, statistic, random_state)

        return Comparison(scores, expected, how, match=match, recall=recall)

    def for_many(self, n_images: int, n_patches: int) -> PeerReference:
        """The same reference with one engine for all images."""
        n_peers, of_a_peer, dim = self.peers.shape
        flop = n_images * n_peers * search_flop(n_patches, of_a_peer, dim)
        settled = copy(self)
        settled.engine = self.engine.for_work(flop)
        return settled

    def stored(self) -> StoredReference:
        """The peers."""
        return StoredReference(self.kind, self.peers)


def restore_reference(
    stored: StoredReference,
    *,
    nearest_share: float,
    over: str = "mean",
    expected_normals: int = 0,
    engine: Engine | None = None,
) -> Reference:
    """Restore a stored reference. nearest_share, over: see compare_with_peers. expected_normals:
    see NormalReference."""
    kind, patches = stored.kind, stored.patches
    if kind == PeerReference.kind:
        return PeerReference(patches, nearest_share, engine=engine, over=over)
    if kind != NormalReference.kind:
        raise ValueError(f"reference: '{kind}'")
    if stored.lists is None:
        return NormalReference(
            patches,
            exact=True,
            engine=engine,
            rows=stored.rows,
            expected_normals=expected_normals,
        )
    centres, offsets = stored.lists
    lists = InvertedLists(
        np.asarray(centres, np.float32),
        patches,
        np.asarray(offsets, np.int64),
        np.arange(len(patches)),  # sorted already
    )
    return NormalReference(
        patches,
        exact=False,
        lists=lists,
        engine=engine,
        rows=stored.rows,
        expected_normals=expected_normals,
    )


def compare_with_peers(
    bags: Bags,
    *,
    n_peers: int | Literal["all"] | None = None,
    nearest_share: float = 1.0,
    over: str = "mean",
    engine: Engine | None = None,
    counts: PeerCounts = PEER_COUNTS,
    random_state: int = 0,
    progress: Progress | None = None,
) -> tuple[Comparison, PeerReference]:
    """Compare every image with all others (Eq. 5) or with a sample of them (Eq. 7).

    n_peers: None takes all images of a small set and a sample of a larger one (`usual_peers`).
    nearest_share: the mean is taken over this share of the peers, those nearest to the patch;
    1 is the paper's mean over all. over: one of OVER_PEERS; the maximum and the minimum are
    over all of them, and need the share 1. engine: None for the CPU in float32. counts: of the
    peers, where they are not given, and of those that are stored. Also returns a reference for new
    images.
    """
    chosen_engine = engine or CpuEngine()
    order = np.random.default_rng(random_state).permutation(len(bags))
    if n_peers is None:
        n_peers = usual_peers(len(bags), counts)
    count = len(bags) if n_peers == "all" else min(n_peers, len(bags))
    pairs = count * len(bags) - count * (count + 1) // 2
    engine = chosen_engine.for_work(pairs * pair_flop(bags))
    peers = np.sort(order[:count])

    def fold(patches: Floats, cells: Ints, report: Progress | None) -> NDArray[np.float32]:
        statistic = _statistic(len(bags), len(cells), len(peers) - 1, nearest_share, over)
        return engine.fold_peers(patches, peers, statistic, progress=report)

    scores = compare_by_tile(bags, fold, progress)
    stored = np.sort(order[: min(counts.stored, count)])
    reference = PeerReference(
        bags.patches[stored],
        nearest_share,
        engine=chosen_engine,
        counts=counts,
        rows=stored,
        over=over,
    )
    self_rows = np.full(len(bags), -1)
    self_rows[stored] = np.arange(len(stored))

    def expected(images: Ints, chosen: Ints) -> NDArray[np.float32]:
        return expected_by_tile(engine, bags, images, chosen, reference.peers, self_rows[images])

    how = "compared with each other"
    if len(peers) < len(bags):
        how = f"compared with a sample of {len(peers)} of them"
    how += f" ({engine.name})"
    match = match_among_peers(bags, reference.peers, self_rows)

    def recall(random_state: int) -> Recall | None:
        if engine.single_precision:
            return None
        everybody = bags.patches if len(peers) == len(bags) else bags.patches[peers]
        itself = np.full(len(bags), -1)
        itself[peers] = np.arange(len(peers))
        statistic = partial(
            _statistic, n_peers=len(peers) - 1, nearest_share=nearest_share, over=over
        )
        return recall_among_peers(bags, scores, everybody, itself, statistic, random_state)

    return Comparison(scores, expected, how, match=match, recall=recall), reference


def usual_peers(n_images: int, counts: PeerCounts = PEER_COUNTS) -> int | Literal["all"]:
    """The default number of peers for a set of this size."""
    return "all" if n_images <= counts.all_up_to else counts.sampled


def _statistic(
    n_images: int, n_patches: int, n_peers: int, nearest_share: float, over: str
) -> PeerStatistic:
    if over != "mean":
        return (MaxOverPeers if over == "max" else MinOverPeers)(n_images, n_patches)
    if nearest_share >= 1:
        return MeanOverPeers(n_images, n_patches)
    count = max(1, round(nearest_share * n_peers))
    return MeanOverNearestPeers(n_images, n_patches, count)
