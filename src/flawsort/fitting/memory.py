"""Estimates the memory of a run, held in memory or streamed, and decides between the two."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from flawsort.core.errors import OptionError
from flawsort.core.text import shown_size
from flawsort.embeddings.method import EMBEDDINGS, WITHOUT_PAIRS, Method
from flawsort.scores.engines import CPU_LIMITS, CpuLimits
from flawsort.scores.reference import PEER_COUNTS, PeerCounts

# The number of peers that messages advise if not all images can be compared with each other.
FEWER_PEERS = 128

# Bytes of each pair of images while groups are made, measured at their peak with 500 and 1,000
# images: up to 48 beside given distances, which are held twice in single precision (the minima that
# they are made of take 16 before that); on embeddings 44 for spectral clustering and up to 18 for
# others. Ward's method, k-means and Gaussian mixtures hold no distances of all pairs.
GIVEN_PAIR = 56
SPECTRAL_PAIR = 48
PAIR = 20

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_size(text: str | int, parameter: str = "max_memory") -> int:
    """Bytes from 4GB, 500M or a plain number. parameter: the name for the error."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)i?B?\s*", str(text), re.IGNORECASE)
    amount = float(found[1]) if found else 0.0
    size = int(amount * _UNITS[found[2].upper()]) if found and math.isfinite(amount) else 0
    if size <= 0:
        raise OptionError(f"must be a size such as 4GB or 500M. Got '{text}'.", parameter=parameter)
    return size


@dataclass(frozen=True)
class Sizes:
    """The amount of data that a run holds at a time, and the constants of the memory estimate.

    in_memory: up to this many bytes of bags are held in memory, unless a limit is given.
    batch_images: images in a batch, 30 MB of bags with the preset default, and enough queries
        for a search. sample_images: the temperature and the heat scale of a streamed set are
        measured on this many images. min_normals: the minimum size of a sample of the normals.
        batches_between_pruning: the cache is pruned after this many batches, 1.9 GB of bags with
        the preset default. compared_with_regions: regions are compared with at most this many
        images of a large set. peers: how many images of a set are peers. cpu: the amounts of work
        that decide how the CPU compares images.
    base: bytes for Python, NumPy and onnxruntime with a backbone. per_image: bytes per image
        besides its patches: thumbnail, names, digests, and rows in tables. bank: bytes for the
        patches of the normals, their inverted lists, and building these.
    """

    in_memory: int = 2**31
    batch_images: int = 64
    sample_images: int = 512
    min_normals: int = 64
    batches_between_pruning: int = 64
    compared_with_regions: int = 16384
    peers: PeerCounts = PEER_COUNTS
    cpu: CpuLimits = CPU_LIMITS
    base: int = 400 * 2**20
    per_image: int = 12_000
    bank: int = 3 * 512 * 2**20

    def for_photos(self, bag: int) -> Sizes:
        """The same for photos in tiles, whose bags take this many bytes each: fewer at a time, so
        that the memory stays the same. A photo has as many patches as dozens of images, so fewer
        photos are enough to measure and to compare with."""
        most = self.in_memory // bag
        peers = self.peers
        return replace(
            self,
            batch_images=min(self.batch_images, max(8, most // 8)),
            sample_images=min(self.sample_images, max(16, most // 2)),
            min_normals=min(self.min_normals, max(8, most // 2)),
            batches_between_pruning=max(1, self.batches_between_pruning // 8),
            peers=PeerCounts(
                min(peers.all_up_to, max(16, most)),
                min(peers.sampled, max(16, most // 2)),
                min(peers.stored, max(8, most // 4)),
            ),
        )

    @property
    def batched_images(self) -> int:
        """Images of all batches in progress at a time."""
        return 4 * self.batch_images


USUAL_SIZES = Sizes()


def pair_bytes(method: Method) -> int:
    """The bytes that a method's distances between all images take for each pair, at their peak."""
    if method.distance != EMBEDDINGS:
        return GIVEN_PAIR
    if method.clusterer in WITHOUT_PAIRS:
        return 0
    return SPECTRAL_PAIR if method.clusterer == "spectral" else PAIR


@dataclass(frozen=True)
class Need:
    """The memory that a set needs. shapes: (n_patches, dim) of a bag in each view. n_peers: of a
    streamed run. decoding: bytes of the large photos that are decoded at a time. pair: see
    `pair_bytes`. held: what needs all images at once; "" if nothing but their comparison does."""

    n_images: int
    n_normals: int
    shapes: tuple[tuple[int, int], ...]
    n_peers: int = 0
    sizes: Sizes = USUAL_SIZES
    decoding: int = 0
    pair: int = 0
    held: str = ""

    @property
    def pairs(self) -> int:
        """Bytes of the distances between all images."""
        return self.pair * self.n_images**2

    @property
    def bag(self) -> int:
        return sum(2 * n_patches * dim for n_patches, dim in self.shapes)

    @property
    def n_patches(self) -> int:
        """Of the first view, which scores and weights have."""
        return self.shapes[0][0]

    @property
    def dim(self) -> int:
        """The number of columns of an embedding, about: pooled and mean patches of each view."""
        return sum(2 * dim for _, dim in self.shapes)

    @property
    def bags(self) -> int:
        """Bytes of all bags."""
        return (self.n_images + self.n_normals) * self.bag

    @property
    def in_memory(self) -> int:
        """Estimated bytes of a run with all bags in memory."""
        sizes = self.sizes
        # Scores and weights in single precision, with copies and intermediate results.
        results = self.n_images * (32 * self.n_patches + 16 * self.dim + sizes.per_image)
        # For peers, two copies of the patches in eight bits, and the nearest distances of each.
        peers = self.n_images * max(n * (2 * dim + 128) for n, dim in self.shapes)
        known = min(sizes.bank, 3 * self.n_normals * self.bag)
        return sizes.base + self.decoding + self.bags + results + max(peers, known) + self.pairs

    @property
    def streamed(self) -> int:
        """Estimated bytes of a streamed run."""
        sizes = self.sizes
        # Scores and weights in half precision, twice, since joining and sorting copies them.
        results = self.n_images * (8 * self.n_patches + 16 * self.dim + sizes.per_image)
        normals = self.n_normals * self.bag
        known = min(normals, sizes.in_memory) + min(sizes.bank, 3 * normals)
        # Peers are part of the sample, and are held twice: as they are, and in eight bits.
        held = max(sizes.sample_images, self.n_peers) + self.n_peers + sizes.batched_images
        held = min(held, 3 * self.n_images)
        return sizes.base + self.decoding + held * self.bag + results + known + self.pairs


def must_stream(need: Need, max_memory: int | None, *, all_pairs: bool) -> bool:
    """Whether a run must be streamed. all_pairs: all images are compared with each other, or needed
    at once, which cannot be streamed. OptionError if max_memory is too small, with advice."""
    if max_memory is None:
        return not all_pairs and need.bags > need.sizes.in_memory
    if need.in_memory <= max_memory:
        return False
    if need.held:
        few = replace(need, n_images=2).in_memory <= max_memory
        raise OptionError(
            f"must be at least {_enough(need.in_memory)} for {need.n_images:,} images, all held at "
            f"once for {need.held}. Got {shown_size(max_memory)}."
            + (" Allow more, or sort fewer images at a time." if few else ""),
            parameter="max_memory",
        )
    if all_pairs:
        sampled = replace(need, n_peers=FEWER_PEERS)
        fits_with_fewer = need.n_images > FEWER_PEERS and sampled.streamed <= max_memory
        raise OptionError(
            f"must be at least {_enough(need.in_memory)} to compare {need.n_images:,} images with "
            f"each other. Got {shown_size(max_memory)}."
            + (
                f" Allow more, or compare with {FEWER_PEERS} peers, which works in batches."
                if fits_with_fewer
                else ""
            ),
            parameter="max_memory",
        )
    if need.streamed > max_memory:
        fewer = replace(need, n_images=1, n_peers=0).streamed <= max_memory
        advice = "Allow more, or sort fewer images at a time."
        if replace(need, pair=0).streamed <= max_memory:
            advice = (
                "Allow more, sort fewer images at a time, or take the clusterer 'ward', which "
                "holds no distances of all pairs."
            )
        raise OptionError(
            f"must be at least {_enough(need.streamed)} for {need.n_images:,} images, even in "
            f"batches. Got {shown_size(max_memory)}." + (f" {advice}" if fewer else ""),
            parameter="max_memory",
        )
    return True


def _enough(size: int) -> str:
    """A size in GB, rounded up, so that the advised size is enough."""
    return f"{math.ceil(10 * size / 2**30) / 10:.1f} GB"
