"""The score below which an image looks normal: from the normals, each compared with the others."""

from __future__ import annotations

import numpy as np
import pytest

from flawsort.embeddings.heat import (
    NORMAL_DEVIATIONS,
    NORMAL_PRECISION,
    MeasuredPrecision,
    calibrate,
)
from flawsort.embeddings.weights import image_scores
from helpers.bags import Array
from helpers.plates import ROOT


def scores_of(n: int, *, seed: int = 0, n_patches: int = 64) -> Array:
    return 0.3 + 0.03 * np.random.default_rng(seed).standard_normal((n, n_patches))


def test_two_standard_deviations_above_the_mean_of_the_normals() -> None:
    normals = scores_of(12)
    found = calibrate(scores_of(5, seed=1), None, normals).normal_below
    whole = image_scores(normals, None)
    assert found == pytest.approx(whole.mean() + NORMAL_DEVIATIONS * whole.std())


def test_patches_that_do_not_count_change_nothing() -> None:
    normals = scores_of(12)
    valid = np.random.default_rng(2).random(normals.shape) > 0.3
    found = calibrate(scores_of(5), None, np.where(valid, normals, np.nan)).normal_below
    whole = image_scores(np.where(valid, normals, 99.0), valid)
    assert found == pytest.approx(whole.mean() + NORMAL_DEVIATIONS * whole.std())


def test_normals_without_a_known_patch_do_not_count() -> None:
    normals = scores_of(12)
    some = np.concatenate([normals, np.full((3, 64), np.nan)])
    one, other = (calibrate(scores_of(5), None, given) for given in (normals, some))
    assert one.normal_below == other.normal_below


def test_flawed_images_do_not_look_normal() -> None:
    images = scores_of(20, seed=1)
    images[12:, 20:24] += 0.5
    found = calibrate(images, None, scores_of(12)).normal_below
    assert found is not None
    whole = image_scores(images, None)
    assert (whole[:12] < found).mean() > 0.8
    assert not (whole[12:] < found).any()


@pytest.mark.parametrize(
    "normals",
    [
        pytest.param(None, id="none"),
        pytest.param(scores_of(1), id="one"),
        pytest.param(np.full((9, 64), np.nan), id="none known"),
    ],
)
def test_it_is_not_known_without_normals(normals: Array | None) -> None:
    assert calibrate(scores_of(10), None, normals).normal_below is None


def test_it_does_not_depend_on_the_images() -> None:
    normals = scores_of(12)
    found = {calibrate(scores_of(n, seed=n), None, normals).normal_below for n in (2, 9, 30)}
    assert len(found) == 1


def test_order_changes_nothing() -> None:
    normals, order = scores_of(12), np.random.default_rng(0).permutation(12)
    one, other = (calibrate(scores_of(5), None, some) for some in (normals, normals[order]))
    assert one.normal_below == pytest.approx(other.normal_below, rel=1e-12)


def test_equal_normals() -> None:
    found = calibrate(scores_of(5), None, np.full((9, 64), 0.25)).normal_below
    assert found == pytest.approx(0.25)


class TestMeasuredPrecision:
    @pytest.fixture
    def measured(self) -> dict[str, float]:
        """The precision of each set, and the mean of all, by docs/evidence/results.md."""
        text = (ROOT / "docs/evidence/results.md").read_text("utf-8")
        section = text.partition("## Good or flawed")[2].partition("\n## ")[0]
        rows = [line.strip("| ").split("|") for line in section.splitlines() if line[:2] == "| "]
        at = next(i for i, head in enumerate(rows[0]) if "precision, recall" in head)
        named = {row[0].strip(" *"): row[at].split(",")[0].strip() for row in rows[2:]}
        return {name: float(value) for name, value in named.items() if value}

    def test_it_is_the_one_of_the_results(self, measured: dict[str, float]) -> None:
        sets = [value for name, value in measured.items() if not name.startswith("mean")]
        assert NORMAL_PRECISION.n_sets == len(sets)
        assert measured["mean, all"] == pytest.approx(np.mean(sets), abs=0.001)
        assert NORMAL_PRECISION.mean == pytest.approx(measured["mean, all"], abs=0.0051)
        assert NORMAL_PRECISION.lowest == pytest.approx(min(sets), abs=0.0051)
        assert NORMAL_PRECISION.highest == pytest.approx(max(sets), abs=0.0051)

    def test_the_guide_says_it(self) -> None:
        text = (ROOT / "docs/guide/known-good-images.md").read_text("utf-8")
        found = NORMAL_PRECISION
        mean, low, high = (
            f"{p:.2f}".removeprefix("0") for p in (found.mean, found.lowest, found.highest)
        )
        said = " ".join(text.split())
        assert f"On {found.n_sets} public sets" in said
        assert f"was {mean} on average, from {low} to {high}" in said
        wrong, least, most = (
            round(100 * (1 - p)) for p in (found.mean, found.highest, found.lowest)
        )
        assert f"{wrong} were flawed, in a single set from {least} to {most}." in said

    def test_in_words(self) -> None:
        assert str(MeasuredPrecision(9, 0.9, 0.55, 0.98)) == (
            "Not every image that looks normal is good. On 9 public sets, with the default, 10 "
            "in 100 of them were flawed on average, and from 2 to 45 in a single set."
        )
