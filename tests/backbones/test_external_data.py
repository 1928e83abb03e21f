"""Weights in files beside an ONNX file are part of it: found there, counted in its SHA-256."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flawsort.backbones import load_backbone
from flawsort.backbones.embed import cache_setting
from flawsort.backbones.external_data import external_files
from flawsort.core.errors import BackboneError
from flawsort.images.view import View
from helpers import onnx_files

PIXELS = np.ones((1, 3, 16, 16), np.float32)


def made(folder: Path, scale: float = 2.0, name: str = "weights.bin") -> Path:
    """A model whose weights are in another file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(np.full(3, scale, "<f4").tobytes())
    path = folder / "net.onnx"
    path.write_bytes(onnx_files.scaled(name))
    return path


def test_they_are_loaded_from_the_folder_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path / "model", 2.0)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/weights.bin").write_bytes(np.full(3, 5.0, "<f4").tobytes())
    for given in (path, Path("../model/net.onnx")):
        (found,) = load_backbone(given).feature_maps(PIXELS)
        np.testing.assert_allclose(found, 2.0)


def test_they_count_in_its_hash_and_in_the_key_of_the_cache(tmp_path: Path) -> None:
    one, same, other = (
        load_backbone(made(tmp_path / name, scale))
        for name, scale in (("one", 2.0), ("same", 2.0), ("other", 3.0))
    )
    assert one.info.sha256 == same.info.sha256 != other.info.sha256
    settings = [cache_setting(backbone, View()) for backbone in (one, same, other)]
    assert settings[0] == settings[1] != settings[2]
    chosen = load_backbone(f"{tmp_path}/one/net.onnx#map")
    assert chosen.info.sha256 != one.info.sha256
    made(tmp_path / "one", 4.0)  # the file with the graph is the same
    again = load_backbone(tmp_path / "one/net.onnx")
    assert again.info.sha256 != one.info.sha256
    np.testing.assert_allclose(again.feature_maps(PIXELS)[0], 4.0)


def test_a_file_in_a_folder_below(tmp_path: Path) -> None:
    path = made(tmp_path, 2.0, "data/weights.bin")
    assert external_files(path.read_bytes(), path) == {
        "data/weights.bin": tmp_path / "data/weights.bin"
    }
    np.testing.assert_allclose(load_backbone(path).feature_maps(PIXELS)[0], 2.0)


def test_weights_of_a_node(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    content = onnx_files.scaled("weights.bin", within="constant")
    (tmp_path / "weights.bin").write_bytes(b"")
    assert list(external_files(content, path)) == ["weights.bin"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = made(tmp_path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(BackboneError, match=r"keeps weights in 'weights\.bin', which is not in"):
        load_backbone(path)


@pytest.mark.parametrize("name", ["../w.bin", "/etc/hostname", "a/../../w.bin", "C:\\w.bin", ""])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx_files.scaled(name))
    with pytest.raises(BackboneError, match="must keep its weights in its own folder"):
        load_backbone(path)


def test_a_change_while_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made(tmp_path)
    from flawsort.backbones import onnx

    real = onnx._open_session

    def changed(*given: object) -> object:
        (tmp_path / "weights.bin").write_bytes(np.full(3, 9.0, "<f4").tobytes())
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(onnx, "_open_session", changed)
    with pytest.raises(BackboneError, match="changed while it was being loaded"):
        load_backbone(path)


def test_what_is_no_model_has_no_files() -> None:
    path = Path("net.onnx")
    for content in (b"", b"\xff" * 40, b"\x3a\xff\xff\x03abc", np.random.default_rng(0).bytes(200)):
        assert external_files(content, path) == {}
    deep = b"x"
    for _ in range(200):  # graphs in graphs
        deep = onnx_files._bytes(1, onnx_files._bytes(5, onnx_files._bytes(6, deep)))
    assert external_files(onnx_files._bytes(7, deep), path) == {}
    whole = onnx_files.average_pool(8)
    assert all(external_files(whole[:stop], path) == {} for stop in range(len(whole)))
