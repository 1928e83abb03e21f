"""The results of a fit in one record, which is saved as a run and restored from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flawsort.backbones import BackboneChoice, BackboneInfo
from flawsort.backbones.base import INPUT_SIZE_OF_PATCHES
from flawsort.clusters.advice import Advice
from flawsort.clusters.assign import Groups
from flawsort.clusters.kinds import Kinds, Regions, find_plain_groups, kinds_of_images
from flawsort.core.errors import InputError
from flawsort.core.records import Bools, Floats, ImageSet
from flawsort.embeddings.describer import Describer
from flawsort.embeddings.heat import HeatScale
from flawsort.embeddings.places import Places
from flawsort.embeddings.weights import image_scores
from flawsort.images.view import View


@dataclass(frozen=True, repr=False)
class Fitted:
    """All results of a fit, in the order of the images given.

    images, normals: those used, and those set aside. view: how each file is viewed.
    backbones: one for each view, none if Bags were given. opened: how to open them again.
    describer: describes new images. grid: rows and columns of the patches.
    scores, weights: (n, n_patches). valid: (n, n_patches), None if all patches count.
    embeddings: (n, dim). regions: the unusual places. linkage: (n - 1, 4). labels: (n,).
    n_clusters: the number of groups. n_clusters_requested: the number that the caller gave, or
    "auto". scored: how patches were compared, in words. timings: seconds by stage. warnings: for
    the user. places: the most unusual ones, and the best matching places of the reference; None if
    they are not known. gallery: the digests of the reference's images, as `places` numbers them.
    """

    images: ImageSet
    normals: ImageSet | None
    view: View
    backbones: tuple[BackboneInfo, ...]
    opened: tuple[BackboneChoice, ...]
    describer: Describer
    grid: tuple[int, int]
    scores: Floats
    weights: Floats
    valid: Bools | None
    embeddings: Floats
    regions: Regions
    linkage: NDArray[np.float64]
    labels: NDArray[np.int64]
    n_clusters: int
    n_clusters_requested: int | Literal["auto"]
    advice: Advice
    scored: str
    random_state: int
    timings: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    places: Places | None = None
    gallery: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        n, n_patches = len(self.images), self.grid[0] * self.grid[1]
        expected = {
            "scores": (n, n_patches),
            "weights": (n, n_patches),
            "valid": (n, n_patches),
            "embeddings": (n, self.embeddings.shape[-1]),
            "linkage": (n - 1, 4),
            "labels": (n,),
        }
        for name, shape in expected.items():
            values = getattr(self, name)
            if values is not None and values.shape != shape:
                raise InputError(f"{name} must have the shape {shape}. Got {values.shape}.")
        owners = self.regions.outlines.images
        if len(owners) and not 0 <= owners.min() <= owners.max() < n:
            raise InputError(f"regions must belong to the {n} images. Got image {owners.max()}.")
        if self.places is not None:
            self._check_places(self.places)

    def _check_places(self, places: Places) -> None:
        n, n_regions = len(self.images), len(self.regions)
        expected = {"boxes": (n, 4), "matches": (n, 3), "of_regions": (n_regions, 3)}
        for name, shape in expected.items():
            values = getattr(places, name)
            if values.shape != shape:
                raise InputError(f"places.{name} must have the shape {shape}. Got {values.shape}.")

    def __repr__(self) -> str:
        return f"Fitted({len(self.images)} images, {self.n_clusters} groups; {self.scored})"

    @property
    def heat(self) -> HeatScale:
        """The scale that turns scores into heat."""
        return self.describer.heat

    @property
    def backbone(self) -> BackboneInfo | None:
        """The backbone of the first view; None if Bags were given."""
        return self.backbones[0] if self.backbones else None

    @property
    def n_dims(self) -> int:
        """The number of dimensions of a patch in the first view."""
        return self.describer.looks[0].dim

    @property
    def bag_shapes(self) -> tuple[tuple[int, int], ...]:
        """(n_patches, dim) of each bag in each view. n_patches is that of the images, which may
        have several tiles."""
        return self.describer.shapes

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of the backbone's input."""
        return INPUT_SIZE_OF_PATCHES if self.backbone is None else self.backbone.input_size

    @property
    def normal_digests(self) -> frozenset[str]:
        """The SHA-256 of the images that were given as normal."""
        return frozenset(() if self.normals is None else self.normals.digests)

    @cached_property
    def image_scores(self) -> NDArray[np.float64]:
        """(n,): how unusual each image is."""
        return image_scores(self.scores, self.valid, self.describer.looks[0].tile)

    @cached_property
    def looks_normal(self) -> Bools | None:
        """(n,): whether an image is no more unusual than known-good ones. None without enough of
        these: compared with peers, a faint flaw may look normal."""
        if self.heat.normal_below is None:
            return None
        normal: Bools = self.image_scores <= self.heat.normal_below
        return normal

    @cached_property
    def groups(self) -> Groups:
        """What new images are placed by, measured once."""
        return Groups.of(self.embeddings, self.labels)

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        """The row of each image, by its digest."""
        return {digest: row for row, digest in enumerate(self.images.digests)}

    @cached_property
    def plain_groups(self) -> frozenset[int]:
        """The groups without a flaw."""
        return find_plain_groups(self.looks_normal, self.labels, self.regions.outlines.images)

    @cached_property
    def kinds(self) -> Kinds:
        """For each image its group, and the other groups that its regions resemble."""
        regions = self.regions
        return kinds_of_images(
            self.labels, regions.outlines.images, regions.labels, self.plain_groups
        )
