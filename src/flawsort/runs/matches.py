"""The best matching places of a run: the images they lie in, and how they are stored.

The tables name the image and say how far the place lies from where it is here. The gallery of a run
says which images the reference is made of, so that new images are matched with it, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flawsort.core.records import Bools, Ints
from flawsort.core.tables import Table
from flawsort.embeddings.places import Places, hottest_boxes
from flawsort.fitting.fitted import Fitted
from flawsort.runs.run import Run
from flawsort.runs.tables import Matched
from flawsort.scores.places import NOWHERE


@dataclass(frozen=True)
class Match:
    """Where the reference shows the like of a place. name: of the image. down, across: how many
    patches further the place lies there."""

    name: str
    down: int
    across: int


def match_in(table: Table, row: int) -> Match | None:
    """The match in a row of a table of images or regions; None if there is none."""
    name = table["match"][row] if "match" in table else None
    if name is None:
        return None
    return Match(name, int(table["match_down"][row]), int(table["match_across"][row]))


def gallery_arrays(fitted: Fitted, rows: Ints | None) -> dict[str, NDArray[Any]] | None:
    """What a run stores besides its tables. images: (n_gallery,), rows of the normals in the
    manifest or, without normals, of the images. rows: where the patches of normals come from, see
    BankPlaces."""
    if not fitted.gallery:
        return None
    place = {digest: row for row, (_, digest) in reversed(list(enumerate(_listed(fitted))))}
    arrays = {"images": np.array([place[digest] for digest in fitted.gallery], np.int64)}
    return arrays if rows is None else {**arrays, "rows": np.asarray(rows, np.int64)}


def matched_places(fitted: Fitted) -> tuple[Matched | None, Matched | None]:
    """The matches of the images and of their regions, for the tables."""
    if fitted.places is None:
        return None, None
    places = fitted.places
    return matched_in(fitted, places.matches), matched_in(fitted, places.of_regions)


def matched_in(fitted: Fitted, matches: Ints | None) -> Matched | None:
    """The matches (n, 3) of images that were compared with the reference of a fit, for a table."""
    if matches is None or not fitted.gallery:
        return None
    name_of = {digest: name for name, digest in reversed(_listed(fitted))}
    return Matched.of(matches, [name_of[digest] for digest in fitted.gallery])


def gallery_digests(run: Run) -> tuple[str, ...]:
    """The images of the reference by digest; none in a run of an older version."""
    return tuple(digest for _, digest in _gallery(run))


def gallery_names(run: Run) -> list[str]:
    """The same by name."""
    return [name for name, _ in _gallery(run)]


def places_of(run: Run) -> Places | None:
    """The places as the fit found them; None in a run of an older version."""
    known = _gallery(run)
    if not known or "match" not in run.table or "match" not in run.regions:
        return None
    number = {name: place for place, (name, _) in reversed(list(enumerate(known)))}
    boxes, _ = hottest_boxes(run.scores, run.valid, run.outlines, run.grid)
    return Places(boxes, _matches(run.table, number), _matches(run.regions, number))


def hot_peers(run: Run) -> Bools | None:
    """(n_peers, n_patches): which patches of the peers are unusual; None with normals."""
    rows = _gallery_rows(run)
    if rows is None or run.manifest["n_normals"]:
        return None
    hot: Bools = np.asarray(run.scores[rows], np.float32) > run.heat.low
    return hot


def _matches(table: Table, number: dict[str, int]) -> NDArray[np.int64]:
    """(n, 3): as a Match of the scores returns them."""
    found = [match_in(table, row) for row in range(len(table["match"]))]
    matches = [
        NOWHERE if one is None else (number[one.name], one.down, one.across) for one in found
    ]
    return np.array(matches, np.int64).reshape(-1, 3)


def _listed(fitted: Fitted) -> list[tuple[str, str]]:
    """Name and digest of the images that the gallery's rows count."""
    if fitted.normals is None:
        return list(zip(fitted.images.names, fitted.images.digests, strict=True))
    return sorted(zip(fitted.normals.names, fitted.normals.digests, strict=True))


def _gallery(run: Run) -> Sequence[tuple[str, str]]:
    rows = _gallery_rows(run)
    if rows is None:
        return ()
    listed = list(zip(run.names, run.table["sha256"], strict=True))
    if run.manifest["n_normals"]:
        listed = [(name, digest) for name, (_, digest) in run.normal_paths.items()]
    return [listed[row] for row in rows.tolist()]


def _gallery_rows(run: Run) -> Ints | None:
    return None if run.gallery is None else run.gallery["images"]
