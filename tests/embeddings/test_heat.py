"""The calibrated scale and the overlays drawn with it."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from flawsort.core.errors import InputError, OptionError
from flawsort.embeddings.heat import (
    NORMAL_DEVIATIONS,
    HeatScale,
    calibrate,
    colour_table,
    overlay,
)
from flawsort.embeddings.weights import image_scores


def image_heat(scores: np.ndarray, scale: HeatScale, valid: np.ndarray | None = None) -> np.ndarray:
    """(n,): the heat of each image's hottest patch."""
    heat = scale.normalise(scores)
    return (heat if valid is None else np.where(valid, heat, 0.0)).max(axis=1)


def flawed_set(n_good: int = 12, n_bad: int = 8) -> np.ndarray:
    """Scores (n, 64): noise around 0.3, and in the bad ones four patches near 1."""
    rng = np.random.default_rng(0)
    scores = 0.3 + 0.03 * rng.standard_normal((n_good + n_bad, 64))
    scores[n_good:, 20:24] = 1.0 + 0.05 * rng.standard_normal((n_bad, 4))
    return scores


def test_normalise_is_linear_between_the_ends_and_flat_beyond() -> None:
    heat = HeatScale(1.0, 3.0).normalise(np.array([0.0, 1.0, 2.0, 3.0, 9.0, np.nan, np.inf]))
    assert heat.tolist() == [0.0, 0.0, 0.5, 1.0, 1.0, 0.0, 1.0]


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (float("nan"), 1.0)])
def test_scale_without_a_span_is_refused(low: float, high: float) -> None:
    with pytest.raises(OptionError, match="low must be finite and less than high"):
        HeatScale(low, high)


@pytest.mark.parametrize("with_normals", [True, False])
def test_good_images_stay_cold_and_flaws_glow(with_normals: bool) -> None:
    scores = flawed_set()
    scale = calibrate(scores, None, flawed_set(10, 0) if with_normals else None)
    heat = image_heat(scores, scale)
    assert heat[:12].max() < 0.2
    assert heat[12:].min() > 0.7


@pytest.mark.parametrize("with_normals", [True, False])
def test_a_set_without_any_flaw_is_not_stretched_until_it_glows(with_normals: bool) -> None:
    scores = flawed_set(20, 0)
    scale = calibrate(scores, None, flawed_set(10, 0) if with_normals else None)
    assert np.median(image_heat(scores, scale)) < 0.2


def test_what_looks_normal_is_told_by_left_out_normals() -> None:
    normals = flawed_set(10, 0)
    scale = calibrate(flawed_set(), None, normals)
    whole = image_scores(normals)
    expected = whole.mean() + NORMAL_DEVIATIONS * whole.std()
    assert scale.normal_below == pytest.approx(expected)
    seen = image_scores(flawed_set())
    assert (seen[:12] < expected).mean() > 0.9
    assert (seen[12:] > expected).all()


def test_nothing_looks_normal_where_it_is_not_known() -> None:
    assert calibrate(flawed_set()).normal_below is None
    one = flawed_set(1, 0)
    assert calibrate(flawed_set(), None, one).normal_below is None
    assert calibrate(np.full((2, 4), np.nan)).normal_below is None


def test_patches_of_normals_that_do_not_count_change_nothing() -> None:
    normals = flawed_set(10, 0)
    wide = np.hstack([normals, np.full((10, 64), np.nan)])
    both = np.vstack([wide, np.full((1, 128), np.nan)])
    scores = flawed_set()
    expected = calibrate(scores, None, normals).normal_below
    top = image_scores(np.where(np.isnan(wide), 0, wide), ~np.isnan(wide))
    assert calibrate(scores, None, both).normal_below == pytest.approx(
        top.mean() + NORMAL_DEVIATIONS * top.std()
    )
    assert expected is not None


def test_low_is_the_99th_percentile_of_known_normals() -> None:
    normals = flawed_set(10, 0)
    assert calibrate(flawed_set(), None, normals).low == pytest.approx(np.percentile(normals, 99))


def test_patches_that_do_not_count_change_nothing() -> None:
    scores = flawed_set()
    wide = np.hstack([scores, np.full((len(scores), 3), 50.0)])
    valid = np.ones(wide.shape, dtype=bool)
    valid[:, -3:] = False
    kept = wide.copy()
    assert calibrate(wide, valid) == calibrate(scores)
    assert np.array_equal(image_heat(wide, calibrate(scores), valid) > 0.5, np.arange(20) >= 12)
    assert np.array_equal(wide, kept)


@pytest.mark.parametrize(
    "scores",
    [
        np.zeros((5, 9)),
        np.full((1, 9), 0.7),
        np.array([[0.1, 0.2, 5.0]]),
        np.full((2, 4), 1e9),
        np.full((2, 4), np.nan),
        np.array([[np.nan, 0.2], [0.1, np.inf]]),
    ],
)
def test_degenerate_scores_give_a_usable_scale(scores: np.ndarray) -> None:
    scale = calibrate(scores)
    assert np.isfinite([scale.low, scale.high]).all()
    assert scale.high > scale.low
    assert np.isfinite(image_heat(scores, scale)).all()


def test_constant_scores_are_all_cold() -> None:
    scores = np.full((4, 9), 0.7)
    assert image_heat(scores, calibrate(scores)).max() == 0.0


def test_colours_grow_lighter_and_denser_with_heat() -> None:
    table = colour_table().astype(float)
    luminance = table[:, :3] @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(luminance) >= -0.5).all()
    assert luminance[-1] - luminance[0] > 150
    assert (np.diff(table[:, 3]) >= 0).all()
    assert table[0, 3] == 0
    assert table[-1, 3] == 255


def test_overlay_paints_the_hot_patch_and_leaves_the_cold_ones() -> None:
    scores = np.zeros(16)
    scores[5] = 1.0  # second row, second column
    image = Image.new("RGB", (80, 40), (100, 100, 100))
    out = overlay(image, scores, (4, 4), HeatScale(0.1, 1.0))
    assert out.size == (80, 40)
    assert out.mode == "RGB"
    assert out.getpixel((70, 35)) == (100, 100, 100)
    hot = out.getpixel((30, 15))
    assert isinstance(hot, tuple)
    assert hot[0] > 160 > hot[2] + 20
    assert image.getpixel((30, 15)) == (100, 100, 100)


def test_overlay_takes_rows_first() -> None:
    scores = np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0])  # first row, last of three columns
    out = np.asarray(overlay(Image.new("RGB", (90, 60)), scores, (2, 3), HeatScale(0.1, 1.0)))
    row, column = np.unravel_index(out.sum(axis=2).argmax(), (60, 90))
    assert row < 30
    assert column > 60


def test_overlay_says_what_is_wrong() -> None:
    image = Image.new("RGB", (8, 8))
    with pytest.raises(InputError, match=r"scores must have the shape \(6,\).*Got \(5,\)"):
        overlay(image, np.zeros(5), (2, 3), HeatScale(0.0, 1.0))
    with pytest.raises(OptionError, match=r"opacity must be between 0 and 1\. Got 2"):
        overlay(image, np.zeros(6), (2, 3), HeatScale(0.0, 1.0), opacity=2)
    with pytest.raises(InputError, match="valid must have the shape"):
        calibrate(np.zeros((2, 3)), np.ones((2, 4), dtype=bool))
