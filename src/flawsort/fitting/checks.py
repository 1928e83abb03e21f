"""Checks of the options of a fit, and warnings about its images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import Bags, ImageSet

if TYPE_CHECKING:
    from flawsort.backbones import BackboneChoice
    from flawsort.embeddings.method import Method

# Fewer normal images than this rarely show everything that is normal.
FEW_NORMALS = 10


def check_n_clusters(n_clusters: object) -> None:
    """Require "auto" or a whole number from 2."""
    if n_clusters == "auto":
        return
    if isinstance(n_clusters, bool) or not isinstance(n_clusters, int | np.integer):
        raise OptionError(
            f"must be 'auto' or a whole number. Got {n_clusters!r}.", parameter="n_clusters"
        )
    if n_clusters < 2:
        raise OptionError(f"must be at least 2. Got {n_clusters}.", parameter="n_clusters")


def check_random_state(random_state: object) -> None:
    """Require a whole number from 0."""
    whole = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if not whole or random_state < 0:  # type: ignore[operator]
        raise OptionError(
            f"must be a whole number from 0. Got {random_state!r}.", parameter="random_state"
        )


def check_views(views: Bags | Sequence[BackboneChoice], method: Method) -> None:
    """Refuse several views without calibrated scores. views: Bags, or how backbones are opened."""
    n_views = len(views.views) if isinstance(views, Bags) else len(views)
    if method.calibrated or n_views == 1:
        return
    if isinstance(views, Bags):
        raise InputError(
            "Bags must have one view for scores that are not calibrated: those of two views are "
            f"not on one scale. Got {n_views}. Give one view, or calibrate scores."
        )
    raise OptionError(
        "must be a single one if scores are not calibrated, as in the preset paper: scores of two "
        f"backbones are not on one scale. Got {n_views}. Name one, or calibrate scores.",
        parameter="backbone",
    )


def check_runner(
    runner: object, *, address: object = None, n_workers: object = None, parts: object = None
) -> None:
    """Require "local" or "ray", and options that fit the runner."""
    if runner not in ("local", "ray"):
        raise OptionError(f"must be 'local' or 'ray'. Got {runner!r}.", parameter="runner")
    if runner == "local":
        given = {"address": address, "n_workers": n_workers, "parts": parts}
        for name, value in given.items():
            if value is not None:
                raise OptionError(
                    f"needs the runner 'ray', but the runner is 'local'. Change the runner, or "
                    f"leave this out. Got {value}.",
                    parameter=name,
                )
    elif address is not None and parts is None:
        raise OptionError(
            "must be given with the address of a running cluster: a folder that all its machines "
            f"share, or a URL such as s3://bucket/parts. Got only the address {address!r}.",
            parameter="parts",
        )


def check_fit_on_ray(method: Method, *, normals: bool, max_memory: object = None) -> None:
    """Refuse what a fit on a Ray cluster cannot do. normals: whether there are any."""
    if method.weights == "uniform":
        raise OptionError(
            "must be 'local' for uniform weights: without comparisons a cluster has nothing to do. "
            "Got 'ray'.",
            parameter="runner",
        )
    if method.n_peers == "all" and not normals:
        raise OptionError(
            "must be a number, such as 128, for the runner 'ray' without normal images: this "
            "machine embeds all peers, so with 'all' it would do all the work. Got 'all', which "
            "the preset 'paper' also sets.",
            parameter="n_peers",
        )
    if max_memory is not None:
        raise OptionError(
            "has no effect with the runner 'ray', which always streams and does not limit the "
            f"memory of its workers. Leave it out. Got {max_memory!r}.",
            parameter="max_memory",
        )


def check_count(n: int, n_clusters: int | str, found: ImageSet | None = None) -> None:
    """Require at least two images, and at least one per group. found: the images, to count those
    that were set aside."""
    if n < 2:
        bad = 0 if found is None else len(found.set_aside)
        aside = f"; {bad} {'was' if bad == 1 else 'were'} set aside" if bad else ""
        raise InputError(f"At least 2 usable images are needed to group them. Got {n}{aside}.")
    if isinstance(n_clusters, int | np.integer) and n_clusters > n:
        raise OptionError(
            f"must be {'2' if n == 2 else f'between 2 and {n}'} (the number of images). "
            f"Got {n_clusters}.",
            parameter="n_clusters",
        )


def input_warnings(images: ImageSet, normals: ImageSet | None) -> list[str]:
    """Warnings that a person should read before trusting the groups."""
    notes = []
    copies = images.duplicates()
    if copies:
        count = sum(len(group) - 1 for group in copies)
        are = "are exact copies of others" if count > 1 else "is an exact copy of another"
        notes.append(f"{count} of the images {are}.")
    if normals is not None:
        both = len(set(images.digests) & set(normals.digests))
        if both:
            notes.append(
                f"{both} of the images {'are' if both > 1 else 'is'} also among the normal images."
            )
        known = len(set(normals.digests))
        if known < FEW_NORMALS:
            few = f"{known} normal image{'s' if known > 1 else ''}"
            notes.append(f"Only {few}: anything not shown there looks unusual.")
    return notes
