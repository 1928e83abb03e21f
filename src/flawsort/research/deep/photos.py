"""The images of a set as one tensor, decoded once: sets to train on have hundreds, not millions."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import ImageSet, Ints, Progress, SetAside, Source
from flawsort.core.threads import in_threads
from flawsort.images.inputs import content_rows, distinct_rows, used_images
from flawsort.images.view import UnreadableImage, View, decode


def load_photos(
    images: ImageSet, side: int, view: View, progress: Progress | None = None
) -> tuple[torch.Tensor, Ints, ImageSet]:
    """Every distinct content as (3, side, side) bytes, in the order of content.

    Returns the photos (n_distinct, 3, side, side), for each usable image the row of its photo, and
    the usable images. In that order neither names nor copies can change what is learnt.
    """
    if view.tiles != (1, 1):
        raise OptionError(f"A photo is trained on whole: view.tiles must be 1x1. Got {view.tiles}.")
    distinct = images.take(distinct_rows(images))
    photos: list[NDArray[np.uint8]] = []
    bad: list[SetAside] = []

    def read(source: Source) -> NDArray[np.uint8] | str:
        try:
            frame = decode(source, view, (side, side)).frames[0]
        except (UnreadableImage, OptionError, OSError) as error:
            return str(error)
        photo: NDArray[np.uint8] = np.rint(frame * 255).astype(np.uint8)
        return photo

    for row, found in enumerate(in_threads(read, distinct.sources)):
        if isinstance(found, str):
            bad.append(SetAside(distinct.names[row], found))
        else:
            photos.append(found)
        if progress:
            progress("reading", row + 1, len(distinct))
    if len(photos) < 2:
        why = f" The first, '{bad[0].name}': {bad[0].reason}." if bad else ""
        raise InputError(
            f"There must be at least 2 images of different content to train on. Got {len(photos)} "
            f"of {len(images) + len(images.set_aside)}.{why}"
        )
    kept = distinct.without(bad)
    usable = used_images(images, kept)
    return torch.from_numpy(np.stack(photos)), content_rows(usable, kept), usable
