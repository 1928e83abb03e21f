"""The parameters of the method with their defaults, and the presets."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from flawsort.backbones import DEFAULT_BACKBONE, SECOND_BACKBONE, BackboneChoice
from flawsort.core.errors import OptionError
from flawsort.core.records import Bools, Floats
from flawsort.core.text import either
from flawsort.embeddings.pooling import POOLINGS
from flawsort.embeddings.weights import (
    hard_weights,
    mask_weights,
    soft_top_weights,
    soft_weights,
)
from flawsort.scores.hausdorff import HAUSDORFF_VARIANTS
from flawsort.scores.peer_statistics import OVER_PEERS

# docs/evidence/results.md has the measurements behind each number; one setting serves all sets.
TEMPERATURE = 0.5
# Otherwise a few images with large or strong flaws decide the first cuts of the tree. With normals
# and among peers, each chosen on all dev sets together (docs/evidence/results.md).
SHORTEN = 0.35
PEER_SHORTEN = 0.5
# The nearest patch of all normals resembles a flaw as much as a normal patch can, which hides part
# of what is wrong. The taught model is right more often with the mean over many normals, on 12 of
# 13 dev sets; 96 do as well as 32 (docs/evidence/experiments.md).
EXPECTED_NORMALS = 32

# Weights from files: masks, or heat maps that another detector made.
FROM_MAPS = ("masks", "heat-maps")
WEIGHTS = ("auto", "uniform", *FROM_MAPS)
EMBEDDINGS = "embeddings"
DISTANCES = (EMBEDDINGS, *HAUSDORFF_VARIANTS)
# Clusterers by name; flawsort.clusters.clusterers has them. The first ones need vectors, the last
# ones make a tree.
NEED_VECTORS = ("kmeans", "gmm")
LINKAGES = ("single", "complete", "average", "ward")
# On embeddings, these hold no distances of all pairs of images.
WITHOUT_PAIRS = ("ward", *NEED_VECTORS)
CLUSTERERS = (*NEED_VECTORS, "kmedoids", "spectral", *LINKAGES)


@dataclass(frozen=True, kw_only=True, repr=False)
class Method:
    """How bags become embeddings, and embeddings groups.

    weights: "auto" compares patches with the normals if there are any, otherwise with peers;
        "uniform" gives every patch the same weight. "masks" and "heat-maps" take them from files
        that are given beside the images: in proportion to how much of a patch is marked, or as soft
        weights of the heat.
    pooling: one of `flawsort.embeddings.pooling.POOLINGS`. "residual" pools the differences between
        patches and the reference, "average" the patches themselves (Eq. 1).
    nearest_share: with peers, the score of a patch is the mean over this share of them, the
        nearest; 1 is the mean over all (Eq. 5).
    n_peers: the size of a sample of peers (Eq. 7), or "all". None takes all in a set of up to 256
        images, and a sample of 128 in a larger one.
    temperature: how sharply the weights focus on unusual patches, in standard deviations of the
        set's scores. None takes the default.
    absolute_temperature: the same in the units of the scores, the paper's tau. It replaces
        `temperature`.
    exact: True compares patches exactly, in single precision. False may search normals in inverted
        lists, and compare peers in eight bits. None decides by size.
    calibrated: subtract from each score the usual score at its place (flawsort.scores.usual).
        Several views need it.
    mean_share: the share of the image's mean patch in its embedding, for residual pooling. None
        takes the default, which depends on the set.
    shorten: for residual pooling, an embedding of the length r, measured from the mean of the set,
        is divided by r to this power. 0 leaves lengths alone, 1 makes them equal. None takes the
        default, which is larger without normals.
    expected_normals: for residual pooling with normals, the patch expected in place of another is
        the mean of its nearest patch in each of this many normals, evenly spread. 0 takes the
        nearest patch of all normals.
    among_peers: without normals, the score of a patch is the "mean", "max" or "min" over the peers.
    top_k: only this many patches of an image have weight, those with the highest scores. None for
        all. top_weights: "soft" weighs them by their scores, "hard" all the same.
    distance: what is grouped: the "embeddings", or a distance between bags, one of DISTANCES.
    clusterer: one of CLUSTERERS.
    """

    weights: Literal["auto", "uniform", "masks", "heat-maps"] = "auto"
    pooling: str = "residual"
    nearest_share: float = 0.2
    n_peers: int | Literal["all"] | None = None
    temperature: float | None = None
    absolute_temperature: float | None = None
    exact: bool | None = None
    calibrated: bool = True
    mean_share: float | None = None
    shorten: float | None = None
    expected_normals: int = EXPECTED_NORMALS
    among_peers: Literal["mean", "max", "min"] = "mean"
    top_k: int | None = None
    top_weights: Literal["soft", "hard"] = "soft"
    distance: str = EMBEDDINGS
    clusterer: str = "ward"

    def __post_init__(self) -> None:
        for name in ("n_peers", "top_k", "expected_normals"):
            value = getattr(self, name)
            if isinstance(value, np.integer):  # a run stores plain numbers
                object.__setattr__(self, name, int(value))
        self._check_names()
        self._check_numbers()
        self._check_together()

    def __repr__(self) -> str:
        """Only what differs from the default, as scikit-learn's estimators do it."""
        changed = [
            f"{one.name}={getattr(self, one.name)!r}"
            for one in fields(self)
            if getattr(self, one.name) != one.default
        ]
        return f"Method({', '.join(changed)})"

    def _check_names(self) -> None:
        for name, known in (
            ("weights", WEIGHTS),
            ("pooling", tuple(POOLINGS)),
            ("among_peers", OVER_PEERS),
            ("top_weights", ("soft", "hard")),
            ("distance", DISTANCES),
            ("clusterer", CLUSTERERS),
        ):
            value = getattr(self, name)
            if value not in known:
                names = either(f"'{one}'" for one in known)
                raise OptionError(f"must be {names}. Got '{value}'.", parameter=name)

    def _check_numbers(self) -> None:
        if not 0 < self.nearest_share <= 1:
            raise OptionError(
                f"must be greater than 0 and at most 1. Got {self.nearest_share}.",
                parameter="nearest_share",
            )
        counted = isinstance(self.n_peers, int) and self.n_peers >= 2
        if not (counted or self.n_peers in ("all", None)):
            raise OptionError(
                f"must be 'all' or at least 2. Got {self.n_peers}.", parameter="n_peers"
            )
        for name in ("temperature", "absolute_temperature"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise OptionError(
                    f"must be greater than 0 and finite. Got {value}.", parameter=name
                )
        if self.mean_share is not None and not 0 <= self.mean_share <= 10:
            raise OptionError(
                f"must be at least 0 and at most 10. Got {self.mean_share}.",
                parameter="mean_share",
            )
        if self.shorten is not None and not 0 <= self.shorten <= 1:
            raise OptionError(
                f"must be at least 0 and at most 1. Got {self.shorten}.", parameter="shorten"
            )
        if type(self.expected_normals) is not int or self.expected_normals < 0:
            raise OptionError(
                f"must be a whole number of normals, or 0. Got {self.expected_normals}.",
                parameter="expected_normals",
            )
        whole = isinstance(self.top_k, int) and not isinstance(self.top_k, bool)
        if self.top_k is not None and not (whole and self.top_k >= 1):
            raise OptionError(
                f"must be a whole number of patches, at least 1. Got {self.top_k}.",
                parameter="top_k",
            )

    def _check_together(self) -> None:
        """Refuse choices that do not go together."""
        if self.temperature is not None and self.absolute_temperature is not None:
            raise OptionError(
                "replaces the temperature: give one of the two, not both. "
                f"Got {self.absolute_temperature}, and {self.temperature} as the other.",
                parameter="absolute_temperature",
            )
        if self.weights in ("uniform", "masks") and POOLINGS[self.pooling].needs_reference:
            able = either(f"'{name}'" for name in poolings_of_any_weights())
            which = "uniform weights" if self.weights == "uniform" else "weights from masks"
            raise OptionError(
                f"must be {able} for {which}: without a comparison there is no "
                f"{self.pooling} to pool. Got '{self.pooling}'.",
                parameter="pooling",
            )
        if self.top_k is not None and self.weights in ("uniform", "masks"):
            raise OptionError(
                f"needs scores, which the weights '{self.weights}' do not have. Leave it out, or "
                f"take the weights 'auto'. Got {self.top_k}.",
                parameter="top_k",
            )
        if self.top_weights == "hard" and self.top_k is None:
            raise OptionError(
                "says how the patches of top_k are weighed. Give top_k too, or leave this out. "
                "Got 'hard'.",
                parameter="top_weights",
            )
        if self.among_peers != "mean" and self.nearest_share < 1:
            raise OptionError(
                "must be 'mean' where only the nearest peers count. Set nearest_share to 1. Got "
                f"'{self.among_peers}' and nearest_share {self.nearest_share}.",
                parameter="among_peers",
            )
        if self.among_peers != "mean" and not self.compares:
            raise OptionError(
                f"is about images that are compared, and the weights '{self.weights}' compare "
                f"none. Leave it out. Got '{self.among_peers}'.",
                parameter="among_peers",
            )
        if self.distance != EMBEDDINGS and self.clusterer in NEED_VECTORS:
            able = either(f"'{name}'" for name in CLUSTERERS if name not in NEED_VECTORS)
            raise OptionError(
                f"must be {able} for a distance between images: the others need embeddings. "
                f"Got '{self.clusterer}' and '{self.distance}'.",
                parameter="clusterer",
            )

    @property
    def takes_maps(self) -> bool:
        """Whether weights come from files beside the images."""
        return self.weights in FROM_MAPS

    @property
    def compares(self) -> bool:
        """Whether patches are compared with a reference."""
        return self.weights == "auto" or (
            self.weights == "heat-maps" and POOLINGS[self.pooling].needs_reference
        )

    @property
    def has_scores(self) -> bool:
        """Whether patches have scores, compared or from maps."""
        return self.weights != "uniform"

    @property
    def is_held(self) -> bool:
        """Whether it needs all images at once, so that a set cannot be processed in batches."""
        return self.takes_maps or self.distance != EMBEDDINGS

    @property
    def held_for(self) -> str:
        """What needs all images at once; "" if nothing does."""
        if self.distance != EMBEDDINGS:
            return f"the distance '{self.distance}'"
        return f"weights from {self.weights.replace('-', ' ')}" if self.takes_maps else ""

    def weigh(
        self, scores: Floats, temperature: float, valid: Bools | None = None
    ) -> NDArray[np.float32]:
        """(n_images, n_patches): the weights of patches; rows sum to 1. temperature: in the units
        of the scores, see `temperature_for`."""
        if self.weights == "masks":
            return mask_weights(scores, valid)
        if self.top_k is None:
            return soft_weights(scores, temperature, valid)
        if self.top_weights == "hard":
            return hard_weights(scores, self.top_k, valid)
        return soft_top_weights(scores, self.top_k, temperature, valid)

    @property
    def has_means(self) -> bool:
        """Whether mean patches take part in an embedding."""
        return self.mean_share != 0 and POOLINGS[self.pooling].uses_extents

    def shorten_for(self, *, normals: bool) -> float:
        """The power of the shortening. normals: whether patches are compared with normals."""
        if self.shorten is not None:
            return self.shorten
        return SHORTEN if normals else PEER_SHORTEN

    def temperature_for(self, spread: float) -> float:
        """The temperature in the units of the scores. spread: their standard deviation."""
        if self.absolute_temperature is not None:
            return self.absolute_temperature
        return (TEMPERATURE if self.temperature is None else self.temperature) * spread


PRESETS: dict[str, Method] = {
    "default": Method(),
    # The same method with fewer views.
    "fast": Method(),
    # The paper's choices, computed exactly. It gives no value of tau; this one worked well on our
    # sets.
    "paper": Method(
        pooling="average",
        nearest_share=1.0,
        n_peers="all",
        temperature=0.3,
        exact=True,
        calibrated=False,
        mean_share=0.0,
        shorten=0.0,
        expected_normals=0,
    ),
}

# One small network, at the size of the first version.
_SMALL = (BackboneChoice(DEFAULT_BACKBONE),)
# The same network sees small flaws at 512 pixels; its maps are averaged to the usual grid, so that
# comparing takes as long as before. The self-supervised one sees other things, which helps most
# without normals.
_CLOSE = (
    BackboneChoice(DEFAULT_BACKBONE, image_size=512, grid=32),
    BackboneChoice(SECOND_BACKBONE),
)
VIEWS: dict[str, tuple[BackboneChoice, ...]] = {
    "default": _CLOSE,
    "fast": _SMALL,
    "paper": _SMALL,
}
"""The views of each preset: how its backbones are opened."""


def poolings_of_any_weights() -> list[str]:
    """The names of the poolings that need no reference, as weights that compare nothing require."""
    return [name for name, pooling in POOLINGS.items() if not pooling.needs_reference]


def views_of(method: str | Method) -> tuple[BackboneChoice, ...]:
    """The views of a preset. A method of your own has those of the default, or one if its scores
    are not calibrated."""
    if isinstance(method, str):
        return VIEWS.get(method, VIEWS["default"])
    return VIEWS["default"] if method.calibrated else VIEWS["fast"]


def preset_of(method: Method, views: tuple[BackboneChoice, ...]) -> str | None:
    """The name of the preset with this method and these views; None if there is none."""
    found = (name for name, one in PRESETS.items() if one == method and VIEWS[name] == views)
    return next(found, None)


def resolve(method: str | Method) -> Method:
    """The preset of that name, or the method itself."""
    if isinstance(method, Method):
        return method
    if method not in PRESETS:
        raise OptionError(
            f"must be one of {', '.join(PRESETS)} or a Method. Got '{method}'.",
            parameter="method",
        )
    return PRESETS[method]
