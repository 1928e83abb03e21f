"""Places on a disk and in object stores, and a store that fails."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from flawsort.core.store import StoredFolder

needs_stores = pytest.mark.skipif(
    find_spec("fsspec") is None, reason="fsspec is not installed: pip install 'flawsort[ray]'"
)
PLACES = [
    "{}",
    pytest.param("file://{}", marks=needs_stores),
    pytest.param("memory://bucket{}", marks=needs_stores),
]


def a_broken_store(monkeypatch: pytest.MonkeyPatch, *names: str) -> StoredFolder:
    """A store whose driver raises errors of its own kind."""
    from fsspec.implementations.memory import MemoryFileSystem

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("slow down\nrequest 7")

    for name in names:
        monkeypatch.setattr(MemoryFileSystem, name, broken)
    return StoredFolder("memory://bucket/parts")
