"""Every ONNX file of the package is the one that was published."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from flawsort.backbones import catalogue, load_backbone
from flawsort.backbones.graphs import GRAPHS, open_graph
from flawsort.core.errors import BackboneError
from helpers.plates import ROOT

FILES = sorted((ROOT / "src/flawsort").rglob("*.onnx"))


def test_the_hash_of_every_file_is_known() -> None:
    known = {**GRAPHS, **{entry["file"]: entry["sha256"] for entry in catalogue().values()}}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in FILES}
    assert found == known
    assert len(FILES) == len(known)


@pytest.mark.parametrize("path", [path for path in FILES if path.name in GRAPHS], ids=str)
def test_a_changed_graph_does_not_run(tmp_path: Path, path: Path) -> None:
    assert open_graph(path).get_inputs()
    content = bytearray(path.read_bytes())
    content[content.index(b"flawsort")] ^= 1  # only the name of who made it
    changed = tmp_path / path.name
    changed.write_bytes(content)
    with pytest.raises(BackboneError, match=f"graph '{path.name}' is damaged: its SHA-256 is"):
        open_graph(changed)
    with pytest.raises(BackboneError, match="Cannot read"):
        open_graph(tmp_path / "none" / path.name)


@pytest.mark.parametrize(
    ("module", "use"),
    [
        ("flawsort.backbones.float16", "_session"),
        ("flawsort.backbones.onnx", "_products_overflow"),
        ("flawsort.scores.engines.int8", "_session"),
    ],
)
def test_whoever_uses_one_checks_it(module: str, use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    function = getattr(importlib.import_module(module), use).__wrapped__
    function()
    for name in GRAPHS:
        monkeypatch.setitem(GRAPHS, name, "0" * 64)
    with pytest.raises(BackboneError, match="is damaged"):
        function()


@pytest.mark.parametrize("opened", ["graph", "backbone"])
def test_windows_is_told_nothing(monkeypatch: pytest.MonkeyPatch, opened: str) -> None:
    """onnxruntime reports events to the system there, before it opens anything."""
    order: list[str] = []
    real = onnxruntime.InferenceSession

    def session(*arguments: Any, **options: Any) -> Any:
        order.append("session")
        return real(*arguments, **options)

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    monkeypatch.setattr(onnxruntime, "disable_telemetry_events", lambda: order.append("off"))
    if opened == "graph":
        open_graph(next(path for path in FILES if path.name == "overflow.onnx"))
    else:
        load_backbone("efficientnet-lite2")
    assert order[0] == "off"
    assert order.count("off") == order.count("session")
