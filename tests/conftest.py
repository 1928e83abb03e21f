"""Fixtures that several test files share: a small set of plates, and a model fitted to it once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from flawsort import AnomalyClusterer
from flawsort.core import durable
from helpers.plates import KINDS, NORMALS, Answer, Cli, settings, write_plates

# The same examples each time, and no clock: a busy machine takes long for any of them.
hypothesis.settings.register_profile(
    "flawsort",
    derandomize=True,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("flawsort")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or fills the user's own cache, nor does a process that a test starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAWSORT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """No power failure is meant but in tests/core/test_durable.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable, "_sync", lambda file: None)
        yield


@pytest.fixture(scope="module")
def one_torch_thread() -> Iterator[None]:
    """Threads only wait for each other where networks and photos are as small as those of tests."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def plates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with parts/ (7 dents, 7 streaks) and good/ (10 without a flaw)."""
    folder = tmp_path_factory.mktemp("plates")
    write_plates(folder / "parts", KINDS)
    write_plates(folder / "good", NORMALS)
    return folder


@pytest.fixture(scope="session")
def fitted(plates: Path) -> AnomalyClusterer:
    """Two groups of the plates, from normals. Shared: read it, never change it."""
    model = AnomalyClusterer(n_clusters=2, **settings())
    return model.fit(plates / "parts", normal=plates / "good")


@pytest.fixture(scope="session")
def saved(fitted: AnomalyClusterer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of `fitted`. Shared: copy it before changing it."""
    folder = tmp_path_factory.mktemp("saved") / "run"
    fitted.save(folder)
    return folder


@pytest.fixture(scope="session")
def seen_closely(plates: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the plates with so many patches that a close-up is a part of an image. Shared: copy
    it before changing it."""
    model = AnomalyClusterer(n_clusters=2, **settings(image_size=256))
    folder = tmp_path_factory.mktemp("closely") / "run"
    model.fit(plates / "parts", normal=plates / "good").save(folder)
    return folder


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line in this process: cli("cluster", ...) gives code, out and err."""
    from flawsort.cli import main

    def run(*arguments: str | Path) -> Answer:
        monkeypatch.setattr(sys, "argv", ["flawsort", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Answer(int(ended.value.code or 0), out, err)

    return run
