"""benchmarks/audits.py: reviews whose truth is known, the table, and a whole run."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from flawsort.labels.accuracy import Estimate
from helpers.plates import plate


@pytest.fixture(scope="module")
def audits(quality: ModuleType) -> ModuleType:
    return importlib.import_module("audits")


def test_people_who_accept_everything_are_told_how_wrong_it_is(audits: ModuleType) -> None:
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(3), 30)
    vectors = 6 * np.eye(8)[:3][truth] + rng.normal(size=(90, 8))
    clusters = np.where(truth == 2, 1, truth)  # the last kind is hidden among the second
    seen = audits.Seen(truth, None, vectors, truth < 0)
    careless = list(audits.reviews(seen, clusters, careless=True))
    careful = list(audits.reviews(seen, clusters, careless=False))
    assert len(careless) == len(careful) == len(audits.ANSWERS) * len(audits.AUDITS)
    assert [one.found.n for one in careless[:4]] == [10, 20, 30, 45]
    assert np.mean([one.truth for one in careless]) < 0.8
    assert np.mean([one.truth for one in careful]) > 0.9
    for some in (careless, careful):
        says, true = (np.mean([value for value in values]) for values in (
            [one.found.share for one in some], [one.truth for one in some]
        ))  # fmt: skip
        assert says == pytest.approx(true, abs=0.12)


def test_small_sets_have_no_audit(audits: ModuleType) -> None:
    seen = audits.Seen(np.arange(19) % 2, None, np.random.default_rng(0).normal(size=(19, 4)),
                       np.zeros(19, bool))  # fmt: skip
    assert list(audits.reviews(seen, np.arange(19) % 2, careless=False)) == []


@pytest.mark.parametrize(("n_held", "wanted"), [(17, "yes"), (16, "no")])
def test_what_is_wanted(audits: ModuleType, n_held: int, wanted: str) -> None:
    found = Estimate(10, 5)
    inside, outside = audits.Audited(found, 0.5), audits.Audited(found, 0.99)
    assert (inside.held, outside.held) == (True, False)
    line = audits.line_of("all", [inside] * n_held + [outside] * (20 - n_held))
    assert line.split()[:3] == ["all", "20", "0.500"]
    assert line.split()[4:6] == [f"{n_held / 20:.2f}", wanted]


def test_a_small_set_from_end_to_end(
    audits: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for start, folder in enumerate(("test/good", "test/dent", "test/streak", "train/good")):
        (tmp_path / "part" / folder).mkdir(parents=True)
        for number in range(8):
            image = Image.fromarray(plate(folder.rpartition("/")[2], 100 * start + number))
            image.save(tmp_path / "part" / folder / f"{number}.png")
    audits.main(["--data", str(tmp_path / "part"), "--preset", "fast"])
    told = capsys.readouterr().out
    # 24 images: audits of 10 and, three times, of 12.
    assert "with normals, careless" in told
    assert told.splitlines()[-1].split()[:2] == ["all", "48"]
