"""The record of what a fit found: its shapes, what follows from it, and how it is read."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from flawsort import AnomalyClusterer
from flawsort.backbones.base import INPUT_SIZE_OF_PATCHES
from flawsort.clusters.kinds import Regions
from flawsort.core.errors import InputError
from flawsort.embeddings.regions import Outlines
from flawsort.fitting.fitted import Fitted
from helpers.plates import plate_arrays, settings


@pytest.fixture(scope="module")
def found(fitted: AnomalyClusterer) -> Fitted:
    return fitted.fitted_


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"scores": np.zeros((14, 63))}, r"scores must have the shape \(14, 64\)\. Got \(14, 63\)"),
        ({"weights": np.zeros((13, 64))}, r"weights must have the shape \(14, 64\)"),
        ({"valid": np.ones((14, 8, 8), bool)}, r"valid must have the shape \(14, 64\)"),
        ({"embeddings": np.zeros((2, 9))}, r"embeddings must have the shape \(14, 9\)"),
        ({"linkage": np.zeros((14, 4))}, r"linkage must have the shape \(13, 4\)"),
        ({"labels": np.zeros((14, 1), int)}, r"labels must have the shape \(14,\)"),
        ({"grid": (8, 9)}, r"scores must have the shape \(14, 72\)"),
    ],
)
def test_shapes_are_checked(found: Fitted, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        dataclasses.replace(found, **changes)


@pytest.mark.parametrize("image", [-1, 14])
def test_regions_are_of_the_images(found: Fitted, image: int) -> None:
    none = np.zeros(1, np.int64)
    outlines = Outlines.of([(image, 1.0, none)])
    regions = Regions(outlines, found.embeddings[:1], none, none, np.zeros(1))
    with pytest.raises(InputError, match="regions must belong to the 14 images"):
        dataclasses.replace(found, regions=regions)


def test_what_follows_from_it(found: Fitted) -> None:
    assert found.heat is found.describer.heat
    assert found.bag_shapes == ((64, found.n_dims),)
    assert found.input_size == (64, 64)
    assert dataclasses.replace(found, backbones=()).input_size == INPUT_SIZE_OF_PATCHES
    assert [kinds[0] for kinds in found.kinds] == found.labels.tolist()


def test_attributes_of_the_estimator_are_read_from_it(fitted: AnomalyClusterer) -> None:
    found = fitted.fitted_
    for field in dataclasses.fields(found):
        if field.name in ("opened", "n_clusters_requested", "random_state"):
            continue  # parameters of the estimator
        value = getattr(fitted, f"{field.name}_")
        kept = getattr(found, field.name)
        assert value is kept or value == type(value)(kept)
        message = r"are read-only\. Set fitted_ to replace all of them"
        with pytest.raises(AttributeError, match=message):
            setattr(fitted, f"{field.name}_", value)
    fitted.timings_["embed"] = -1.0
    fitted.warnings_.append("not theirs")
    assert fitted.timings_ == found.timings
    assert tuple(fitted.warnings_) == found.warnings


def test_nothing_is_there_before_a_fit() -> None:
    model = AnomalyClusterer()
    for name in ("labels_", "kinds_", "fitted_"):
        assert not hasattr(model, name)


def test_a_fit_that_fails_leaves_the_last_one(fitted: AnomalyClusterer) -> None:
    model = AnomalyClusterer(**settings(n_clusters=2)).fit(plate_arrays())
    before = model.fitted_
    with pytest.raises(InputError, match="At least 2 images"):
        model.fit(plate_arrays()[:1])
    assert model.fitted_ is before


def test_reprs_are_short(fitted: AnomalyClusterer) -> None:
    images, found, _ = fitted.assign(plate_arrays())
    shown = [
        fitted.fitted_, fitted.images_, fitted.normals_, fitted.regions_, fitted.describer_,
        fitted.regions_.outlines, images, found,
    ]  # fmt: skip
    for one in shown:
        assert len(repr(one)) < 300
        assert "\n" not in repr(one)
    assert repr(fitted.images_) == (
        "<ImageSet of 14: 'dent00.png', 'dent01.png', 'dent02.png', ...>"
    )
