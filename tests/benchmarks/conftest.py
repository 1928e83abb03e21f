"""The modules of benchmarks/quality.py and of the scripts that use it."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from helpers.plates import ROOT


@pytest.fixture(scope="session", autouse=True)
def quality() -> ModuleType:
    """The script. Scripts of one folder import each other by their plain names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        for name in ("audits", "teach", "refine", "foreground", "health"):
            importlib.import_module(name)
        return importlib.import_module("quality")


@pytest.fixture(scope="session")
def results(quality: ModuleType) -> ModuleType:
    return importlib.import_module("quality_results")


@pytest.fixture(scope="session")
def tables(quality: ModuleType) -> ModuleType:
    return importlib.import_module("quality_tables")
