"""The modules of benchmarks/quality.py."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from helpers.plates import ROOT


@pytest.fixture(scope="session", autouse=True)
def quality() -> ModuleType:
    """The script, which imports the others by their plain names, as scripts of one folder do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        return importlib.import_module("quality")


@pytest.fixture(scope="session")
def results(quality: ModuleType) -> ModuleType:
    return importlib.import_module("quality_results")


@pytest.fixture(scope="session")
def tables(quality: ModuleType) -> ModuleType:
    return importlib.import_module("quality_tables")
