"""The groups of an estimator: from labels, from the review of a run, or as clustered."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flawsort import AnomalyClusterer, Bags, InputError, OptionError, open_run
from flawsort.images.find import find_images
from flawsort.labels.attributes import start_of
from flawsort.labels.session import Session
from flawsort.runs.folder import EDITS
from helpers.bags import flawed_patches
from helpers.plates import KINDS, NORMALS, plate, plate_arrays, settings

SHOWN = (*KINDS, *["good"] * 4, *["ring"] * 5)


def arrays() -> list[np.ndarray]:
    return [plate(kind, number) for number, kind in enumerate(SHOWN)]


def some_labels(n: int = 3, unknown: tuple[str, ...] = ()) -> list[str | None]:
    """The first n of each kind have a label."""
    given: list[str | None] = []
    for kind in SHOWN:
        known = sum(label == kind for label in given) < n and kind not in unknown
        given.append(kind if known else None)
    return given


def fit(y: Any = None, **others: Any) -> AnomalyClusterer:
    model = AnomalyClusterer(**settings(**others))
    return model.fit(arrays(), y, normal=plate_arrays(NORMALS))


@pytest.fixture(scope="module")
def taught() -> AnomalyClusterer:
    """A fit of 7 dents, 7 streaks, 4 good plates and 5 rings, with 3 labels each."""
    return fit(some_labels(), n_clusters=9)


def titles(model: AnomalyClusterer) -> list[str]:
    return [model.group_names_[place] for place in model.groups_]


def expected(**other: str) -> list[str]:
    return [{"good": "normal", **other}.get(kind, kind) for kind in SHOWN]


def test_labels_name_the_groups(taught: AnomalyClusterer) -> None:
    assert taught.group_names_ == ("dent", "ring", "streak", "normal")
    assert titles(taught) == expected()
    sure, given = taught.probabilities_, np.array([one is not None for one in some_labels()])
    assert sure.shape == (len(SHOWN),)
    assert np.isnan(sure[given]).all()
    assert ((sure[~given] > 0.5) & (sure[~given] <= 1)).all()
    assert taught.n_clusters_ == len(set(taught.labels_)) == 9  # what was computed stays


def test_new_images_get_the_taught_groups(taught: AnomalyClusterer) -> None:
    new = [plate(kind, 60) for kind in ("dent", "good", "ring", "streak")]
    found = [taught.group_names_[place] for place in taught.predict(new)]
    assert found == ["dent", "normal", "ring", "streak"]
    assert taught.predict(arrays()).tolist() == taught.groups_.tolist()
    # A new kind, and a good image where no group is normal, are in none of them.
    assert taught.places_of(np.array([-1, 2, -2, 0])).tolist() == [-1, 2, -2, 0]


def test_a_kind_without_labels_is_a_new_group() -> None:
    model = fit(some_labels(unknown=("ring",)))
    assert titles(model) == expected(ring="Group 3")
    assert model.group_names_ == ("dent", "streak", "normal", "Group 3")


def test_saved_and_loaded(taught: AnomalyClusterer, tmp_path: Path) -> None:
    run = taught.save(tmp_path / "run")
    assert list(run.to_frame()["group"]) == titles(taught)
    assert run.table["group"] == titles(taught)
    assert [group.title for group in run.groups] == ["dent", "ring", "streak", "normal"]
    loaded = AnomalyClusterer.load(tmp_path / "run")
    assert loaded.group_names_ == taught.group_names_
    np.testing.assert_array_equal(loaded.groups_, taught.groups_)
    np.testing.assert_array_equal(loaded.probabilities_, taught.probabilities_)
    new = [plate(kind, 61) for kind in ("good", "ring")]
    np.testing.assert_array_equal(loaded.predict(new), taught.predict(new))
    # It can be saved again while nobody has edited it, and not after that.
    taught.save(tmp_path / "run", overwrite=True)
    with Session(tmp_path / "run") as session:
        session.edit("name", {"group": 0, "name": "deep dent"}, session.version)
    assert AnomalyClusterer.load(tmp_path / "run").group_names_[0] == "deep dent"
    with pytest.raises(OptionError, match="holds edits of reviewers, which would be lost"):
        taught.save(tmp_path / "run", overwrite=True)


def test_without_labels_the_groups_are_the_clusters(
    fitted: AnomalyClusterer, saved: Path, tmp_path: Path
) -> None:
    assert fitted.group_names_ == ("Group 0", "Group 1")
    np.testing.assert_array_equal(fitted.groups_, fitted.labels_)
    assert np.isnan(fitted.probabilities_).all()
    shutil.copytree(saved, tmp_path / "run")
    loaded = AnomalyClusterer.load(tmp_path / "run")
    assert not (tmp_path / "run" / EDITS).exists()
    new = [plate("dent", 62), plate("streak", 62)]
    assert loaded.predict(new).tolist() == fitted.predict(new).tolist()
    # The next fit forgets the labels of the last one.
    again = fit(some_labels())
    again.fit(arrays(), normal=plate_arrays(NORMALS))
    np.testing.assert_array_equal(again.groups_, again.labels_)


def test_labels_by_name(plates: Path) -> None:
    model = AnomalyClusterer(**settings(n_clusters=2))
    labels = {f"dent{number:02d}.png": "hole" for number in range(3)}
    labels |= {f"streak{number:02d}.png": "line" for number in range(7, 10)}
    model.fit(plates / "parts", {**labels, "dent04.png": None}, normal=plates / "good")
    assert model.group_names_ == ("hole", "line")
    assert titles(model) == ["hole"] * 7 + ["line"] * 7
    assert np.isnan(model.probabilities_).sum() == 6


def test_labels_of_bags() -> None:
    bags = Bags(flawed_patches([1] * 6 + [2] * 6), (6, 6))
    labels = ["a"] * 3 + [None] * 6 + ["b"] * 3
    model = AnomalyClusterer(n_clusters=2, method="paper").fit(bags, labels)
    assert titles(model) == ["a"] * 6 + ["b"] * 6


class TestPlacesOfLabels:
    def test_files_keep_their_places(self, plates: Path, tmp_path: Path) -> None:
        there = [plates / "parts" / f"dent{number:02d}.png" for number in range(3)]
        (tmp_path / "empty.png").touch()
        given = [there[2], tmp_path / "empty.png", str(there[0]), there[1]]
        start = start_of(["c", "x", "a", None], given, find_images(given))
        assert start is not None
        assert start.labels is not None
        images = find_images(plates / "parts")
        assert start.labels.by_content == {images.digests[0]: "a", images.digests[2]: "c"}

    def test_folders_are_counted_by_name(self, plates: Path) -> None:
        images = find_images(plates / "parts")
        labels = [None, "second", *[None] * 12]
        start = start_of(labels, plates / "parts", images)
        assert start is not None
        assert start.labels is not None
        assert start.labels.by_content == {images.digests[1]: "second"}

    def test_as_many_labels_as_images(self, plates: Path) -> None:
        message = r"y must have one label or None for each of the 14 images\. Got 3\. For a folder,"
        with pytest.raises(InputError, match=message):
            AnomalyClusterer(**settings()).fit(plates / "parts", ["dent"] * 3)
        for wrong in ("dent", 3):
            with pytest.raises(InputError, match=rf"y must be a list with .* Got {wrong!r}\."):
                AnomalyClusterer(**settings()).fit(plates / "parts", wrong)  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"1 of the 1 name with a label is not among the 14 "):
            AnomalyClusterer(**settings()).fit(plates / "parts", {"gone.png": "dent"})


def test_a_run_that_was_taught(taught: AnomalyClusterer, tmp_path: Path) -> None:
    taught.save(tmp_path / "run")
    run = open_run(tmp_path / "run")
    frame = run.suggestions()
    assert list(frame.columns) == ["name", "group", "probability", "decided"]
    assert list(frame["group"]) == titles(taught)
    assert run.accuracy() == {"suggestions": None, "audit": None}
    assert "dent (7), ring (5), streak (7), normal (4)" in repr(run)
