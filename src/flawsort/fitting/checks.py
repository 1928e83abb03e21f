"""Checks of the options of a fit, and warnings about its images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from flawsort.core.errors import InputError, OptionError
from flawsort.core.records import Bags, ImageSet
from flawsort.embeddings.method import EMBEDDINGS, LINKAGES, Method
from flawsort.images.inputs import notes_on_files
from flawsort.scores.engines import Engine

if TYPE_CHECKING:
    from flawsort.backbones import BackboneChoice


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
    """Refuse several views for a distance between bags, or without calibrated scores. views: Bags,
    or how backbones are opened."""
    n_views = len(views.views) if isinstance(views, Bags) else len(views)
    if n_views > 1 and method.distance != EMBEDDINGS:
        raise OptionError(
            "must be 'embeddings' where images are looked at in several views: a distance between "
            "bags is of one. Take the preset fast or paper, or name one backbone. Got "
            f"'{method.distance}' and {n_views} views.",
            parameter="distance",
        )
    if method.calibrated or n_views == 1 or not method.compares:
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
    if method.is_held:
        raise OptionError(
            f"must be 'local' for {method.held_for}: all images are needed at once. Got 'ray'.",
            parameter="runner",
        )
    if not method.compares:
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


def check_arithmetic(method: Method, engine: Engine, arithmetic: str | None) -> None:
    """Refuse an arithmetic that rounds distances where comparisons are to be exact."""
    if method.exact is True and method.compares and not engine.single_precision:
        raise OptionError(
            "must be one that does not round distances, such as float32, for exact comparisons: "
            "leave it out, or ask for approximate ones (--approximate, or exact=False), which say "
            f"what they found. Got '{arithmetic}'.",
            parameter="arithmetic",
        )


def check_normals(method: Method) -> None:
    """Refuse normals where nothing is compared."""
    if not method.compares:
        raise OptionError(
            f"'{method.weights}' does not compare images, so normal images have no effect. Leave "
            "one of the two out.",
            parameter="weights",
        )


def check_examples(method: Method) -> None:
    """Refuse examples that are not grouped where weights come from files: they have none."""
    if method.takes_maps:
        raise OptionError(
            f"are images outside the run, which have no {method.weights.replace('-', ' ')}. Give "
            "their labels with --labels and group them too, or take the weights 'auto'. Got "
            f"examples and the weights '{method.weights}'.",
            parameter="examples",
        )


def check_maps(method: Method, maps: object) -> None:
    """Refuse masks or heat maps that are not used. What is missing, `find_maps` says."""
    if maps is not None and not method.takes_maps:
        raise OptionError(
            "is for the weights 'masks' and 'heat-maps'. Choose one of them, or leave it out. Got "
            f"the weights '{method.weights}'.",
            parameter="maps",
        )


def notes_on_groups(
    method: Method, wanted: int | Literal["auto"], n_clusters: int
) -> tuple[str, ...]:
    """What a person should know of groups that are not Ward's on embeddings. wanted: the number of
    groups asked for. n_clusters: the number made."""
    notes: tuple[str, ...] = ()
    if method.distance != EMBEDDINGS:
        notes += (
            f"The groups go by the distance {method.distance} between images. The map, how typical "
            "an image is, regions and new images go by embeddings.",
        )
    if method.clusterer not in LINKAGES:
        notes += (
            f"{method.clusterer} made these groups. It makes no tree: every other number of groups "
            "divides or joins them by Ward's method.",
        )
    if wanted != "auto" and n_clusters < wanted:
        notes += (f"{method.clusterer} found {n_clusters} groups instead of {wanted}.",)
    return notes


def input_notes(images: ImageSet, normals: ImageSet | None) -> list[str]:
    """What happened to files that are not looked at, or not in full. What a person should know of
    the images themselves is found by flawsort.health."""
    notes = notes_on_files(images)
    if normals is not None:
        notes += [f"Known good: {note}" for note in notes_on_files(normals)]
    return notes
