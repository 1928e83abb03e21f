"""How much memory a run takes, held in memory or streamed, and which of the two it is."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from flawsort.core.errors import OptionError

# What is advised where all images cannot be compared with each other.
FEWER_PEERS = 128

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_size(text: str | int) -> int:
    """Bytes from 4GB, 500M or a plain number."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)i?B?\s*", str(text), re.IGNORECASE)
    amount = float(found[1]) if found else 0.0
    size = int(amount * _UNITS[found[2].upper()]) if found and math.isfinite(amount) else 0
    if size <= 0:
        raise OptionError(
            f"must be a size such as 4GB or 500M. Got '{text}'.", parameter="max_memory"
        )
    return size


@dataclass(frozen=True)
class Sizes:
    """How much a run holds at a time, and what the estimate of its memory counts with.

    in_memory: up to this many bytes of bags are held in memory, unless a limit was given.
    batch_images: images in a batch, 22 MB of bags with the default backbone, and enough queries
        for a search. sample_images: the temperature and the heat scale of a streamed set are
        measured on this many images. min_normals: a sample of the normals has at least this many,
        however large a bag is. batches_between_pruning: the cache is pruned after this many
        batches, 1.4 GB of bags with the default backbone. compared_with_regions: regions are
        compared with at most this many images of a large set.
    base: what Python, NumPy and onnxruntime with a backbone take. per_image: of an image besides
        its patches: its thumbnail, its names and digests, and its rows in tables. bank: a bank of
        normals, its inverted lists, and what building them takes.
    """

    in_memory: int = 2**30
    batch_images: int = 64
    sample_images: int = 512
    min_normals: int = 64
    batches_between_pruning: int = 64
    compared_with_regions: int = 16384
    base: int = 400 * 2**20
    per_image: int = 12_000
    bank: int = 3 * 512 * 2**20

    @property
    def batched_images(self) -> int:
        """Images of the batches that are on the way at a time."""
        return 4 * self.batch_images


USUAL_SIZES = Sizes()


@dataclass(frozen=True)
class Need:
    """What a set needs. n_patches, dim: of a bag. n_peers: of a streamed run."""

    n_images: int
    n_normals: int
    n_patches: int
    dim: int
    n_peers: int = 0
    sizes: Sizes = USUAL_SIZES

    @property
    def bag(self) -> int:
        return 2 * self.n_patches * self.dim

    @property
    def bags(self) -> int:
        """Bytes of all bags."""
        return (self.n_images + self.n_normals) * self.bag

    @property
    def in_memory(self) -> int:
        """Bytes, about, of a run with all bags in memory."""
        sizes = self.sizes
        # Scores and weights in single precision, and what they are copied to and computed from.
        results = self.n_images * (32 * self.n_patches + 16 * self.dim + sizes.per_image)
        # With peers the same patches in eight bits, twice, and the nearest distances of each.
        peers = self.n_images * self.n_patches * (2 * self.dim + 128)
        known = min(sizes.bank, 3 * self.n_normals * self.bag)
        return sizes.base + self.bags + results + max(peers, known)

    @property
    def streamed(self) -> int:
        """Bytes, about, of a run that streams."""
        sizes = self.sizes
        # Scores and weights in half precision, joined and put in order, which takes them twice.
        results = self.n_images * (8 * self.n_patches + 16 * self.dim + sizes.per_image)
        normals = self.n_normals * self.bag
        known = min(normals, sizes.in_memory) + min(sizes.bank, 3 * normals)
        # Peers come out of the sample, and are kept twice: as they are, and in eight bits.
        held = max(sizes.sample_images, self.n_peers) + self.n_peers + sizes.batched_images
        held = min(held, 3 * self.n_images)
        return sizes.base + held * self.bag + results + known


def shall_stream(need: Need, max_memory: int | None, *, everybody: bool) -> bool:
    """Whether a run streams. everybody: all images are compared with each other, which cannot be
    streamed. OptionError where max_memory cannot be met, with what would meet it."""
    if max_memory is None:
        return not everybody and need.bags > need.sizes.in_memory
    if need.in_memory <= max_memory:
        return False
    if everybody:
        sampled = replace(need, n_peers=FEWER_PEERS)
        would_do = need.n_images > FEWER_PEERS and sampled.streamed <= max_memory
        raise OptionError(
            f"must be at least {_enough(need.in_memory)} to compare {need.n_images:,} images with "
            f"each other. Got {_shown(max_memory)}."
            + (
                f" Allow more, or compare with {FEWER_PEERS} peers, which works in batches."
                if would_do
                else ""
            ),
            parameter="max_memory",
        )
    if need.streamed > max_memory:
        fewer = replace(need, n_images=1, n_peers=0).streamed <= max_memory
        raise OptionError(
            f"must be at least {_enough(need.streamed)} for {need.n_images:,} images, even in "
            f"batches. Got {_shown(max_memory)}."
            + (" Allow more, or sort fewer images at a time." if fewer else ""),
            parameter="max_memory",
        )
    return True


def _enough(size: int) -> str:
    """Rounded up: what the message advises must suffice."""
    return f"{math.ceil(10 * size / 2**30) / 10:.1f} GB"


def _shown(size: int) -> str:
    if size < 2**20:
        return f"{size:,} bytes"
    return f"{size / 2**20:.0f} MB" if size < 2**30 else f"{size / 2**30:.1f} GB"
