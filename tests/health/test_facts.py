"""Facts are gathered from a fit, small pictures and the headers of files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flawsort import AnomalyClusterer
from flawsort.core.records import RemoteFile
from flawsort.embeddings.heat import HeatScale
from flawsort.health import facts as facts_module
from flawsort.health.facts import _cold, facts_of
from helpers.plates import SIDE, plate_arrays, settings


@pytest.fixture(scope="module")
def fitted(plates: Path) -> AnomalyClusterer:
    return AnomalyClusterer(**settings(n_clusters=2)).fit(plates / "parts", normal=plates / "good")


def test_facts_about_files(fitted: AnomalyClusterer, plates: Path) -> None:
    run = fitted.make_run()
    facts = facts_of(fitted.fitted_, run.thumbnails)
    first = plates / "parts" / facts.names[0]
    assert len(facts) == len(facts.names) == 14
    assert facts.missing == ()
    assert set(facts.filed.width) == set(facts.filed.height) == {SIDE}
    assert facts.filed.size[0] == first.stat().st_size
    assert facts.filed.folder == ("",) * 14
    assert len(facts.normal_digests or ()) == 10
    assert 90 < facts.pictured.brightness.mean() < 140
    at = first.stat().st_mtime
    os.utime(first, (at, at - 3 * 86_400))
    try:
        later = facts_of(fitted.fitted_, run.thumbnails).filed.day
    finally:
        os.utime(first, (at, at))
    assert facts.filed.day[0] - later[0] == 3
    assert facts.filed.day[1] == later[1]


def test_what_is_not_known_is_told(fitted: AnomalyClusterer) -> None:
    run, found = fitted.make_run(), fitted.fitted_
    gone = replace(
        found.images,
        sources=(Path("gone.png"), RemoteFile("s3://bucket/a.png"), *found.images.sources[2:]),
    )
    facts = facts_of(replace(found, images=gone), (b"", *run.thumbnails[1:]))
    assert facts.missing == (
        "Sizes and times of files are known only of 12 of the 14 images.",
        "Brightness, colour, background, position and direction are known only of 13 of the 14 "
        "images.",
    )
    assert np.isnan(facts.filed.width[:2]).all()
    assert np.isnan(facts.pictured.brightness[0])


def test_heat_is_measured_a_few_images_at_a_time(
    fitted: AnomalyClusterer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _cold(fitted.fitted_)
    assert whole.any()
    assert not whole.all()
    seen: list[int] = []
    normalise = HeatScale.normalise
    monkeypatch.setattr(facts_module, "ROWS_AT_ONCE", 4)
    monkeypatch.setattr(
        HeatScale, "normalise", lambda self, some: seen.append(len(some)) or normalise(self, some)
    )
    np.testing.assert_array_equal(_cold(fitted.fitted_), whole)
    assert seen == [4, 4, 4, 2]


def test_without_known_good_images_it_is_said_what_is_not_known(plates: Path) -> None:
    model = AnomalyClusterer(**settings(n_clusters=2)).fit(plates / "parts")
    (said,) = facts_of(model.fitted_, model.make_run().thumbnails).missing
    assert said.startswith("Whether good and flawed images come apart is not known")


def test_arrays_have_sizes_and_no_times() -> None:
    model = AnomalyClusterer(**settings(n_clusters=2)).fit(
        plate_arrays(), normal=plate_arrays(["good"] * 10)
    )
    facts = facts_of(model.fitted_, model.make_run().thumbnails)
    assert facts.missing == ()
    assert np.isnan(facts.filed.day).all()
    assert set(facts.filed.width) == {SIDE}
