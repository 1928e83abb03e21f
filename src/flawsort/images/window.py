"""The values that become black and white in images of more than 8 bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Source
from flawsort.images.decode import MAX_PIXELS, Raster, UnreadableImage, is_deep, loaded

_PERCENTILES = (0.1, 99.9)
# 16 million numbers take 128 MB; 65,536 of one image determine its percentiles well enough.
_ALL_SAMPLES, _IMAGE_SAMPLES = 16_000_000, 65_536


def measure_window(
    sources: Sequence[Source],
    max_pixels: int = MAX_PIXELS,
    *,
    threads: int = 4,
    image_samples: int = _IMAGE_SAMPLES,
) -> tuple[float, float] | None:
    """The 0.1 and 99.9 percentiles of all images of more than 8 bits; None if there are none.

    Uses an even sample of each image, so the order of the files does not matter. Only the header of
    8-bit files is read. Unreadable images and fully transparent pixels are left out.
    image_samples: the most values of an image.
    """
    with ThreadPoolExecutor(max(1, threads)) as pool:
        flags = pool.map(lambda source: is_deep(source, max_pixels), sources)
        deep = [source for source, flag in zip(sources, flags, strict=True) if flag]
        if not deep:
            return None
        budget = min(image_samples, max(64, _ALL_SAMPLES // len(deep)))
        samples = list(pool.map(lambda source: _sample(source, max_pixels, budget), deep))
    values = np.concatenate(samples)
    if not values.size:
        return None
    low, high = (float(value) for value in np.percentile(values, _PERCENTILES))
    return low, high if high > low else low + max(1.0, abs(low) * 1e-6)


def _sample(source: Source, max_pixels: int, budget: int) -> NDArray[np.float64]:
    """At most about `budget` values of an image of more than 8 bits, evenly spread over it."""
    try:
        with loaded(source, max_pixels) as raster:
            return _spread_values(raster, budget)
    except UnreadableImage:
        return np.empty(0)


def _spread_values(raster: Raster, budget: int) -> NDArray[np.float64]:
    """See `_sample`."""
    assert raster.pixels16 is not None
    height, width, channels = raster.pixels16.shape
    step = max(1, math.ceil(height * width * channels / budget))
    # A step that shares a factor with the width would sample only some columns.
    while math.gcd(step, width) > 1:
        step += 1
    values = raster.pixels16.reshape(-1, channels)[::step]
    if raster.opacity is not None:
        values = values[raster.opacity.reshape(-1)[::step] > 0]
    numbers = values.astype(np.float64).ravel()
    return numbers[np.isfinite(numbers)]
