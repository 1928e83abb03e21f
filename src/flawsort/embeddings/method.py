"""The parameters of the method with their defaults, and the presets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from flawsort.backbones import DEFAULT_BACKBONE, SECOND_BACKBONE, BackboneChoice
from flawsort.core.errors import OptionError
from flawsort.core.text import either
from flawsort.embeddings.pooling import POOLINGS

# docs/evidence/results.md has the measurements behind each number; one setting serves all sets.
TEMPERATURE = 0.5


@dataclass(frozen=True, kw_only=True)
class Method:
    """How bags become embeddings.

    weights: "auto" compares patches with the normals if there are any, otherwise with peers;
        "uniform" gives every patch the same weight.
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
    exact: True and False force exact or approximate search among normals; None decides by size.
    calibrated: subtract from each score the usual score at its place (flawsort.scores.usual).
        Several views need it.
    mean_share: the share of the image's mean patch in its embedding, for residual pooling. None
        takes the default, which depends on the set.
    """

    weights: Literal["auto", "uniform"] = "auto"
    pooling: str = "residual"
    nearest_share: float = 0.2
    n_peers: int | Literal["all"] | None = None
    temperature: float | None = None
    absolute_temperature: float | None = None
    exact: bool | None = None
    calibrated: bool = True
    mean_share: float | None = None

    def __post_init__(self) -> None:
        if self.weights not in ("auto", "uniform"):
            raise OptionError(
                f"must be 'auto' or 'uniform'. Got '{self.weights}'.", parameter="weights"
            )
        if self.pooling not in POOLINGS:
            names = either(f"'{name}'" for name in POOLINGS)
            raise OptionError(f"must be {names}. Got '{self.pooling}'.", parameter="pooling")
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
        if self.temperature is not None and self.absolute_temperature is not None:
            raise OptionError(
                "replaces the temperature: give one of the two, not both. "
                f"Got {self.absolute_temperature}, and {self.temperature} as the other.",
                parameter="absolute_temperature",
            )
        if self.weights == "uniform" and POOLINGS[self.pooling].needs_reference:
            able = either(f"'{name}'" for name in poolings_of_any_weights())
            raise OptionError(
                f"must be {able} for uniform weights: without a comparison there is no "
                f"{self.pooling} to pool. Got '{self.pooling}'.",
                parameter="pooling",
            )

    @property
    def has_means(self) -> bool:
        """Whether mean patches take part in an embedding."""
        return self.mean_share != 0 and POOLINGS[self.pooling].uses_extents

    def temperature_for(self, spread: float) -> float:
        """The temperature in the units of the scores. spread: their standard deviation."""
        if self.absolute_temperature is not None:
            return self.absolute_temperature
        return (TEMPERATURE if self.temperature is None else self.temperature) * spread


PRESETS: dict[str, Method] = {
    "default": Method(),
    # The same method with fewer views.
    "fast": Method(),
    # The paper's choices. It gives no value of tau; this one worked well on our sets.
    "paper": Method(
        pooling="average",
        nearest_share=1.0,
        n_peers="all",
        temperature=0.3,
        calibrated=False,
        mean_share=0.0,
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
    """The names of the poolings that need no reference, as weights="uniform" requires."""
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
