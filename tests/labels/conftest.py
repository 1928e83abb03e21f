"""A small run, and files of edits that are closed after each test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flawsort import AnomalyClusterer, Bags
from flawsort.labels.store import EditStore
from flawsort.runs.convert import make_run
from flawsort.runs.folder import save_run
from flawsort.runs.run import Run
from helpers.bags import flawed_patches


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test opens is closed after it."""
    opened: list[EditStore] = []
    initialize = EditStore.__init__

    def remember(self: EditStore, path: str | Path, **options: Any) -> None:
        opened.append(self)
        initialize(self, path, **options)

    monkeypatch.setattr(EditStore, "__init__", remember)
    yield
    for store in opened:
        store.close()


@pytest.fixture(scope="module")
def model() -> AnomalyClusterer:
    patches = flawed_patches([0] * 8 + [1] * 9 + [2] * 7 + [3] * 6)
    return AnomalyClusterer(n_clusters=4, random_state=0).fit(Bags(patches, (6, 6)))


@pytest.fixture(scope="module")
def run(model: AnomalyClusterer) -> Run:
    return make_run(model.fitted_)


@pytest.fixture(scope="module")
def original(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "run"
    save_run(run, folder)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run #1? 100% öre"))


@pytest.fixture
def public(original: Path) -> Iterator[Path]:
    """A copy of the run that everybody can read, in a folder that becomes read-only by `lock`."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield Path(shutil.copytree(original, Path(place) / "run"))
        (Path(place) / "run").chmod(0o755)
