"""Bags made up, described as a fit describes a set that it holds in memory."""

from __future__ import annotations

import numpy as np
import pytest

from flawsort.core.records import Bags, ImageSet, Progress
from flawsort.embeddings.describer import Describer
from flawsort.embeddings.features import Described
from flawsort.embeddings.heat import HeatScale
from flawsort.embeddings.method import Method
from flawsort.fitting.comparing import known_good
from flawsort.fitting.fit import describe_set
from flawsort.fitting.options import FitOptions
from flawsort.fitting.source import HeldSource
from flawsort.scores.engines import CpuEngine, Engine

BLANK = np.zeros((1, 1), np.uint8)


def held(bags: Bags) -> HeldSource:
    """Bags as they are, in their order."""
    numbers = range(len(bags))
    images = ImageSet(
        tuple(f"{row:05d}.png" for row in numbers),
        (BLANK,) * len(bags),
        tuple(f"digest {row:05d}" for row in numbers),
    )
    return HeldSource(images, images, bags)


def fit_describer(
    bags: Bags,
    normals: Bags | None,
    method: Method,
    *,
    engine: Engine | None = None,
    random_state: int = 0,
    progress: Progress | None = None,
) -> tuple[Describer, Described, str]:
    """A set described by itself, from its normals if there are any, and how, in words."""
    options = FitOptions(
        method, engine or CpuEngine(), random_state=random_state, progress=progress
    )
    known = None
    if normals is not None:
        known = known_good(held(normals), len(bags), options, whole=True)
    found = describe_set(held(bags), known, options)
    return found.describer, found.described, found.how


def check_heat(found: HeatScale, expected: HeatScale, *, rel: float) -> None:
    """The same scale, but for rounding."""
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=rel)
    assert (found.normal_below is None) == (expected.normal_below is None)
    if expected.normal_below is not None:
        assert found.normal_below == pytest.approx(expected.normal_below, rel=rel)
