"""Backbones: the embedded default, ONNX files by path, and patches from feature maps."""

from __future__ import annotations

import importlib
import math
from pathlib import Path

import numpy as np
import pytest

from flawsort.backbones import DEFAULT_BACKBONE, Backbone, catalogue, entry_path, load_backbone
from flawsort.backbones.float16 import to_half
from flawsort.backbones.patches import patch_embeddings
from flawsort.core.errors import BackboneError, OptionError
from helpers import onnx_files
from helpers.bags import Array

# The package has a function of that name, which hides the module.
catalogue_module = importlib.import_module("flawsort.backbones.catalogue")


@pytest.fixture(scope="module")
def embedded() -> Backbone:
    return load_backbone(DEFAULT_BACKBONE, device="cpu")


def saved(folder: Path, content: bytes, name: str = "net.onnx") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def noise(n: int, height: int, width: int) -> Array:
    return np.random.default_rng(0).random((n, 3, height, width), dtype=np.float32)


# ---- the embedded default ----


@pytest.mark.parametrize("size", [256, 320])
def test_shapes_and_strides(size: int) -> None:
    backbone = load_backbone(DEFAULT_BACKBONE, image_size=size)
    assert backbone.info.input_size == (size, size)
    assert backbone.info.pooling_kernel == 3
    maps = backbone.feature_maps(noise(2, size, size))
    assert [one.shape for one in maps] == [
        (2, 48, size // 8, size // 8),
        (2, 120, size // 16, size // 16),
    ]
    assert all(one.dtype == np.float32 for one in maps)
    patches, grid = patch_embeddings(maps)
    assert grid == (size // 8, size // 8)
    assert patches.shape == (2, (size // 8) ** 2, 168)


def test_golden_numbers_of_the_default_backbone(embedded: Backbone) -> None:
    y, x = np.mgrid[0:256, 0:256] / 256
    image = np.stack([x, y, 0.5 + 0.5 * np.sin(40 * x * y)])[None].astype(np.float32)
    fine, coarse = embedded.feature_maps(image)
    # From onnxruntime 1.31 on x86-64. Its graph optimisations alone move activations, which go
    # up to 40, by 1.3e-4; the export may differ from torch by 2e-4 of the largest one, 8e-3.
    tolerance = 8e-3
    np.testing.assert_allclose(
        fine[0, :4, 16, 16], [16.363245, -8.785181, 0.316559, 14.654704], atol=tolerance
    )
    np.testing.assert_allclose(
        coarse[0, :4, 8, 8], [4.773016, -4.371241, -0.433201, -5.345431], atol=tolerance
    )
    patches, _ = patch_embeddings([fine, coarse])
    # The same optimisations move patches by 6e-7; 8e-3 of 40 is 2e-4 of a unit vector.
    np.testing.assert_allclose(
        patches[0, 528, [0, 1, 2, 3, -4, -3, -2, -1]],
        [0.184683, -0.067505, 0.005821, 0.193561, 0.001866, -0.064632, 0.082878, -0.046971],
        atol=2e-4,
    )


def test_an_image_has_the_same_features_alone_and_in_a_batch(embedded: Backbone) -> None:
    images = noise(3, 256, 256)
    before = images.copy()
    for whole, alone in zip(
        embedded.feature_maps(images), embedded.feature_maps(images[1:2]), strict=True
    ):
        np.testing.assert_allclose(whole[1:2], alone, atol=2e-3)
    np.testing.assert_array_equal(images, before)


def test_a_damaged_embedded_backbone_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entry = catalogue()[DEFAULT_BACKBONE]
    content = bytearray(entry_path(entry).read_bytes())
    content[len(content) // 2] ^= 1
    copy = saved(tmp_path, bytes(content))
    monkeypatch.setattr(catalogue_module, "entry_path", lambda _: copy)
    with pytest.raises(
        BackboneError, match=r"'efficientnet-lite2' is damaged: .* Install flawsort again\."
    ):
        load_backbone(DEFAULT_BACKBONE)


def test_a_missing_embedded_backbone_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(catalogue_module, "entry_path", lambda _: tmp_path / "gone.onnx")
    with pytest.raises(BackboneError, match=r"gone\.onnx': No such file"):
        load_backbone(DEFAULT_BACKBONE)


@pytest.mark.parametrize("size", [0, 16, 31, 100, 2080, -32])
def test_image_sizes_that_are_refused(size: int) -> None:
    with pytest.raises(BackboneError, match=rf"multiple of 32 between 32 and 2048\. Got {size}\."):
        load_backbone(DEFAULT_BACKBONE, image_size=size)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        BackboneError,
        match=r"one of efficientnet-lite2, dinov2-small or the path of an \.onnx file\. Got 'vit'"
        r"\. flawsort\[torch\] adds resnet18, .*, convnext_base, each also as NAME:last",
    ):
        load_backbone("vit")


def test_onnx_files_take_no_weights(tmp_path: Path) -> None:
    for name in (DEFAULT_BACKBONE, tmp_path / "x.onnx"):
        with pytest.raises(
            OptionError, match=r"'[^']*(lite2|x\.onnx)' has its own\. Got 'w\.pth'; leave it out\."
        ):
            load_backbone(name, weights=Path("w.pth"))


# ---- any ONNX file ----


def test_the_embedded_file_by_its_path(tmp_path: Path, embedded: Backbone) -> None:
    path = saved(tmp_path, entry_path(catalogue()[DEFAULT_BACKBONE]).read_bytes(), "é x.ONNX")
    for given in (path, str(path)):
        backbone = load_backbone(given)
        assert backbone.info.name == "é x.ONNX"
        assert backbone.info.sha256 == embedded.info.sha256
        assert backbone.info.licence == "not recorded"
        assert backbone.info.input_size == (256, 256)
    images = noise(1, 256, 256)
    for mine, theirs in zip(
        backbone.feature_maps(images), embedded.feature_maps(images), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, atol=1e-4)


def naive_means(images: Array, stride: int) -> Array:
    n, channels, height, width = images.shape
    means = np.empty((n, channels, height // stride, width // stride))
    for row in range(height // stride):
        for col in range(width // stride):
            square = images[
                ..., row * stride : (row + 1) * stride, col * stride : (col + 1) * stride
            ]
            means[..., row, col] = square.astype(np.float64).mean(axis=(2, 3))
    return means


def test_feature_maps_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    backbone = load_backbone(saved(tmp_path, onnx_files.two_strides()), image_size=32)
    assert backbone.info.input_size == (32, 32)
    images = noise(3, 32, 32)
    maps = backbone.feature_maps(images.astype(np.float64))
    assert len(maps) == 2
    np.testing.assert_allclose(maps[0], naive_means(images, 8), atol=1e-6)
    np.testing.assert_allclose(maps[1], naive_means(images, 16), atol=1e-6)


@pytest.mark.parametrize("n", [1, 4, 7, 8])
def test_a_fixed_batch_size_is_filled_up(tmp_path: Path, n: int) -> None:
    path = saved(tmp_path, onnx_files.average_pool(8, batch=4))
    images = noise(n, 32, 32)
    (means,) = load_backbone(path, image_size=32).feature_maps(images)
    assert means.shape == (n, 3, 4, 4)
    np.testing.assert_allclose(means, naive_means(images, 8), atol=1e-6)


def test_a_fixed_input_size_is_taken_from_the_file(tmp_path: Path) -> None:
    path = saved(tmp_path, onnx_files.average_pool(8, size=(48, 64)))
    assert load_backbone(path).info.input_size == (48, 64)
    square = saved(tmp_path, onnx_files.average_pool(8, size=(48, 48)), "square.onnx")
    assert load_backbone(square, image_size=48).info.input_size == (48, 48)
    with pytest.raises(
        BackboneError,
        match=r"^image_size must be left out .* takes images of 48 x 48 only\. Got 256\.$",
    ):
        load_backbone(square, image_size=256)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"not a network\n", id="text"),
        pytest.param(onnx_files.two_strides()[:-40], id="truncated"),
        pytest.param(
            entry_path(catalogue()[DEFAULT_BACKBONE]).read_bytes()[:100_000], id="much truncated"
        ),
    ],
)
def test_files_that_are_no_network(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(
        BackboneError, match=r"Backbone 'net\.onnx' is not an ONNX file that onnxruntime can load: "
    ) as caught:
        load_backbone(saved(tmp_path, content))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match=r"Cannot read the backbone file '.*x\.onnx': No such"):
        load_backbone(tmp_path / "x.onnx")
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(BackboneError, match=r"Cannot read the backbone file '.*folder\.onnx'"):
        load_backbone(tmp_path / "folder.onnx")


@pytest.mark.parametrize(
    ("content", "got"),
    [
        (onnx_files.with_two_inputs(), r"one tensor\(float\) .*, other tensor\(float\)"),
        (onnx_files.of_rows(), r"row tensor\(float\) \['n', 8\]"),
        (onnx_files.average_pool(2, kind=onnx_files.INT64), None),
    ],
    ids=["two inputs", "rows", "integers"],
)
def test_networks_with_another_input(tmp_path: Path, content: bytes, got: str | None) -> None:
    # onnxruntime itself refuses to pool integers.
    message = "can load" if got is None else rf"one float input \(n, 3, height, width\)\. Got {got}"
    with pytest.raises(BackboneError, match=message):
        load_backbone(saved(tmp_path, content))


def test_a_network_without_feature_maps(tmp_path: Path) -> None:
    backbone = load_backbone(saved(tmp_path, onnx_files.without_maps()), image_size=32)
    with pytest.raises(
        BackboneError, match=r"must have a feature-map output .* Got shapes \[\(2, 3072\)\]\."
    ):
        backbone.feature_maps(noise(2, 32, 32))


def test_a_network_that_fails_says_on_what(tmp_path: Path) -> None:
    backbone = load_backbone(saved(tmp_path, onnx_files.average_pool(8, channels=1)))
    with pytest.raises(
        BackboneError, match=r"'net\.onnx' failed on a batch of shape \(2, 3, 32, 32\): \S"
    ):
        backbone.feature_maps(noise(2, 32, 32))


# ---- patches ----


def naive_pooled(maps: Array, kernel: int) -> Array:
    """Means over kernel x kernel, at the border over the neighbours that there are."""
    rows, cols = maps.shape[2:]
    reach = kernel // 2
    pooled = np.zeros(maps.shape)
    for row in range(rows):
        for col in range(cols):
            near = [
                maps[..., r, c]
                for r in range(max(row - reach, 0), min(row + reach + 1, rows))
                for c in range(max(col - reach, 0), min(col + reach + 1, cols))
            ]
            pooled[..., row, col] = sum(near) / len(near)
    return pooled


def naive_bilinear(maps: Array, rows: int, cols: int) -> Array:
    """Between the centres of cells; beyond the outer centres the outer values hold."""

    def source(place: int, old: int, new: int) -> tuple[int, int, float]:
        at = min(max((place + 0.5) * old / new - 0.5, 0.0), old - 1.0)
        low = math.floor(at)
        return low, min(low + 1, old - 1), at - low

    resized = np.empty((*maps.shape[:2], rows, cols))
    for row in range(rows):
        for col in range(cols):
            top, bottom, down = source(row, maps.shape[2], rows)
            left, right, across = source(col, maps.shape[3], cols)
            upper = (1 - across) * maps[..., top, left] + across * maps[..., top, right]
            lower = (1 - across) * maps[..., bottom, left] + across * maps[..., bottom, right]
            resized[..., row, col] = (1 - down) * upper + down * lower
    return resized


def naive_patches(maps: list[Array], kernel: int = 3) -> Array:
    rows, cols = max(m.shape[2] for m in maps), max(m.shape[3] for m in maps)
    parts = []
    for one in maps:
        part = naive_bilinear(naive_pooled(one.astype(np.float64), kernel), rows, cols)
        parts.append(part / np.linalg.norm(part, axis=1, keepdims=True))
    whole = np.concatenate(parts, axis=1)
    whole /= np.linalg.norm(whole, axis=1, keepdims=True)
    return np.array(
        [[image[:, row, col] for row in range(rows) for col in range(cols)] for image in whole]
    )


@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param([(4, 3, 3)], id="one map"),
        pytest.param([(4, 1, 1)], id="one patch"),
        pytest.param([(1, 2, 5)], id="one channel"),
        pytest.param([(4, 6, 6), (3, 3, 3)], id="strides 1 and 2"),
        pytest.param([(3, 2, 2), (4, 8, 8), (2, 4, 4)], id="three strides, finest in the middle"),
        pytest.param([(4, 6, 4), (3, 3, 2)], id="not square"),
        pytest.param([(4, 7, 5), (3, 3, 2)], id="not a multiple"),
        pytest.param([(4, 5, 5), (3, 1, 1)], id="a single cell beside many"),
        pytest.param([(2, 6, 2), (2, 2, 6)], id="finest in one side each"),
    ],
)
def test_patches_against_loops(shapes: list[tuple[int, int, int]]) -> None:
    rng = np.random.default_rng(len(shapes))
    maps = [rng.standard_normal((2, *shape)).astype(np.float32) for shape in shapes]
    before = [one.copy() for one in maps]
    patches, grid = patch_embeddings(maps)
    assert patches.dtype == np.float32
    assert grid == (max(s[1] for s in shapes), max(s[2] for s in shapes))
    np.testing.assert_allclose(patches, naive_patches(maps), atol=2e-5)
    np.testing.assert_allclose(np.linalg.norm(patches, axis=2), 1, atol=1e-5)
    for one, kept in zip(maps, before, strict=True):
        np.testing.assert_array_equal(one, kept)


@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
def test_kernels_against_loops(kernel: int) -> None:
    rng = np.random.default_rng(kernel)
    # The same shapes for every kernel, so that what is kept of one must not serve another.
    maps = [rng.standard_normal((2, 4, 6, 5)), rng.standard_normal((2, 3, 3, 2))]
    patches, grid = patch_embeddings(maps, kernel)
    assert grid == (6, 5)
    np.testing.assert_allclose(patches, naive_patches(maps, kernel), atol=2e-5)


def test_the_kernel_is_the_papers_unless_told_and_1_pools_nothing() -> None:
    maps = np.random.default_rng(0).standard_normal((1, 3, 4, 4))
    np.testing.assert_array_equal(patch_embeddings([maps])[0], patch_embeddings([maps], 3)[0])
    alone = maps[0].reshape(3, 16).T
    alone = alone / np.linalg.norm(alone, axis=1, keepdims=True)
    np.testing.assert_allclose(patch_embeddings([maps], 1)[0][0], alone, atol=1e-6)


@pytest.mark.parametrize("kernel", [0, 2, 4, -1])
def test_kernels_that_are_refused(kernel: int) -> None:
    with pytest.raises(OptionError, match=rf"an odd number, 1 or more\. Got {kernel}\."):
        patch_embeddings([np.ones((1, 2, 3, 3))], kernel)


def test_scaling_a_map_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    maps = [rng.standard_normal((1, 3, 4, 4)), rng.standard_normal((1, 2, 2, 2))]
    straight, _ = patch_embeddings(maps)
    scaled, _ = patch_embeddings([maps[0] * 50, maps[1] / 50])
    np.testing.assert_allclose(scaled, straight, atol=1e-5)


def test_a_vector_of_zeros_points_in_the_direction_of_all_ones() -> None:
    maps = np.zeros((1, 4, 5, 5), np.float32)
    maps[0, 0, 0, 0] = 1.0
    patches, _ = patch_embeddings([maps])
    np.testing.assert_allclose(patches[0, 0], [1, 0, 0, 0])
    np.testing.assert_allclose(patches[0, -1], 0.5)
    both, _ = patch_embeddings([maps, np.zeros((1, 2, 5, 5), np.float32)])
    np.testing.assert_allclose(np.linalg.norm(both, axis=2), 1, atol=1e-6)
    np.testing.assert_allclose(both[0, -1], np.array([0.5] * 4 + [0.5**0.5] * 2) * 0.5**0.5)


def test_halves_are_those_of_numpy() -> None:
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    finite = np.sort(every[np.isfinite(every)]).astype(np.float32)
    ties = (finite[:-1] + finite[1:]) / 2
    near = np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))
    values = np.concatenate([finite, ties, *near, np.float32([1e-10, -1e-30, np.inf, -np.inf])])
    for shaped in (values, values[: 6 * 7 * 8].reshape(6, 7, 8), values[:0]):
        halves = to_half(shaped)
        assert halves.dtype == np.float16
        np.testing.assert_array_equal(halves, shaped.astype(np.float16))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    maps = np.ones((2, 2, 3, 3), np.float32)
    maps[1, 1, 2, 2] = value
    with pytest.raises(BackboneError, match="returned values that are not finite"):
        patch_embeddings([maps])


def test_outputs_can_be_chosen_by_name(tmp_path: Path) -> None:
    path = saved(tmp_path, onnx_files.two_strides())
    pixels = np.random.default_rng(0).random((1, 3, 32, 32)).astype(np.float32)
    whole = load_backbone(path, image_size=32)
    maps = whole.feature_maps(pixels)
    names = [output.name for output in whole._session.get_outputs()]  # type: ignore[attr-defined]
    assert len(maps) == len(names) == 2
    for name, one in zip(names, maps, strict=True):
        part = load_backbone(f"{path}#{name}", image_size=32)
        (found,) = part.feature_maps(pixels)
        np.testing.assert_array_equal(found, one)
        assert part.info.name == f"{path.name}#{name}"
        assert part.info.sha256 != whole.info.sha256
    both = load_backbone(f"{path}#{names[1]},{names[0]}", image_size=32).feature_maps(pixels)
    np.testing.assert_array_equal(both[0], maps[1])
    with pytest.raises(BackboneError, match=rf"must be among {names[0]}, {names[1]}. Got 'none'"):
        load_backbone(f"{path}#none", image_size=32)
