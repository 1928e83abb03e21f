"""The catalogue of embedded backbones, and the second of them. test_onnx.py has the default."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from flawsort.backbones import Backbone, catalogue, load_backbone
from flawsort.backbones import onnx as onnx_module
from flawsort.backbones.catalogue import Entry
from flawsort.backbones.onnx import OnnxBackbone
from flawsort.backbones.patches import patch_embeddings
from flawsort.core.errors import BackboneError
from helpers import onnx_files
from helpers.bags import Array


@pytest.fixture(scope="module")
def dinov2() -> Backbone:
    return load_backbone("dinov2-small", device="cpu")


def noise(n: int) -> Array:
    return np.random.default_rng(0).random((n, 3, 224, 224), dtype=np.float32)


def test_every_embedded_backbone_says_where_it_came_from() -> None:
    for name, entry in catalogue().items():
        info = load_backbone(name).info
        assert info.name == name
        assert info.sha256 == entry["sha256"]
        assert info.licence == "Apache-2.0"
        assert len(info.origin) > 20
        assert info.input_size == tuple(entry["input_size"])


def test_dinov2_has_one_size_and_pools_nothing(dinov2: Backbone) -> None:
    assert dinov2.info.input_size == (224, 224)
    assert dinov2.info.pooling_kernel == 1
    maps = dinov2.feature_maps(noise(2))
    assert [(one.shape, one.dtype) for one in maps] == [((2, 128, 16, 16), np.float32)] * 2
    assert load_backbone("dinov2-small", image_size=224).info.input_size == (224, 224)
    with pytest.raises(BackboneError, match=r"takes images of 224 x 224 only\. Got 256\."):
        load_backbone("dinov2-small", image_size=256)


def test_golden_numbers_of_dinov2(dinov2: Backbone) -> None:
    y, x = np.mgrid[0:224, 0:224] / 224
    image = np.stack([x, y, 0.5 + 0.5 * np.sin(40 * x * y)])[None].astype(np.float32)
    maps = dinov2.feature_maps(image)
    # From onnxruntime 1.31 on x86-64 with VNNI. Without it some numbers are rounded the other way,
    # which moved the cosines of a patch to others by up to .009 and its numbers by up to .002.
    for features, expected in zip(
        maps,
        [
            [0.16758, 0.12571, 0.56248, 0.07808, 0.23203],
            [0.40411, 0.3402, 0.65908, 0.37667, 0.41406],
        ],
        strict=True,
    ):
        patches = patch_embeddings([features], 1)[0][0]
        found = patches[[0, 15, 100, 240, 255]] @ patches[135]
        np.testing.assert_allclose(found, expected, atol=0.02)
    np.testing.assert_allclose(
        patch_embeddings(maps, 1)[0][0, 135, [0, 1, 2, 3, -4, -3, -2, -1]],
        [0.085317, -0.056687, 0.050316, 0.063602, 0.053362, 0.102808, 0.08467, 0.000826],
        atol=0.01,
    )


def test_dinov2_gives_an_image_the_same_features_in_any_batch(dinov2: Backbone) -> None:
    images = noise(3)
    images[0] *= 0.01  # rounding must not depend on the range of the other images
    for whole, alone in zip(
        dinov2.feature_maps(images), dinov2.feature_maps(images[:1]), strict=True
    ):
        np.testing.assert_allclose(whole[:1], alone, atol=1e-5)


def test_the_pooling_kernel_of_an_entry_is_used(tmp_path: Path) -> None:
    content, path = onnx_files.average_pool(8), tmp_path / "net.onnx"
    path.write_bytes(content)
    entry: Entry = {
        "file": str(path),
        "sha256": hashlib.sha256(content).hexdigest(),
        "licence": "none",
        "origin": "a test",
        "input_size": [64, 64],
    }
    assert OnnxBackbone.from_catalogue("x", entry, None).info.pooling_kernel == 3
    entry["pooling_kernel"] = 5
    assert OnnxBackbone.from_catalogue("x", entry, None).info.pooling_kernel == 5


def processor_flags() -> set[str]:
    path = Path("/proc/cpuinfo")
    return set(path.read_text("utf-8").split()) if path.exists() else set()


def test_products_do_not_overflow_with_vnni() -> None:
    if not processor_flags() & {"avx512_vnni", "avx_vnni"}:
        pytest.skip("not known for this processor")
    assert not onnx_module._products_overflow()


def test_exact_products_where_they_would_overflow(
    dinov2: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exact(backbone: Backbone) -> str:
        assert isinstance(backbone, OnnxBackbone)
        options = backbone._session.get_session_options()
        return str(options.get_session_config_entry("session.x64quantprecision"))

    monkeypatch.setattr(onnx_module, "_products_overflow", lambda: True)
    overflowing = load_backbone("dinov2-small", device="cpu")
    assert exact(overflowing) == "1"
    images = noise(1)
    if not processor_flags() & {"avx512_vnni", "avx_vnni"}:
        pytest.skip("not known for this processor")
    for ours, theirs in zip(
        overflowing.feature_maps(images), dinov2.feature_maps(images), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
