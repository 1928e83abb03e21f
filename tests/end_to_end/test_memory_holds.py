"""A run keeps within its memory limit, whatever is in the folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.plates import ROOT, run_code

SIDE, LIMIT, ABOVE = 6000, 700 * 2**20, 300 * 2**20

AS_IN_PYTHON = """
model = AnomalyClusterer(method="fast", max_memory=int(sys.argv[2]), cache=None, n_clusters=3)
model.fit(sys.argv[1])
run = model.make_run()
"""
AS_A_COMMAND = """
parameters = dict(method="fast", max_memory=int(sys.argv[2]), cache=None, n_clusters=3)
place = Path(sys.argv[1] + "-run")
given = dict(glob=None, truth=None, overwrite=False, parameters=parameters)
run, _ = cluster_images([sys.argv[1]], [], place, **given)
"""
FIT = """
import json, sys
from pathlib import Path
from flawsort import AnomalyClusterer
from flawsort.cli.cluster import cluster_images
{}
aside = {{one["name"]: one["reason"] for one in run.manifest["set_aside"]}}
# What getrusage says would count the process that started this one, too.
status = Path("/proc/self/status").read_text().splitlines()
peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
print(json.dumps([len(run), aside, peak]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count otherwise")
@pytest.mark.parametrize("way", [AS_IN_PYTHON, AS_A_COMMAND], ids=["Python", "command"])
def test_small_files_that_decode_to_gigabytes(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from hostile_files import make_usual, write_png

    tmp_path = tmp_path / "images"
    make_usual(tmp_path, 16)
    for name, level in (("bomb", 0), ("another-bomb", 1)):
        rows = np.full((1, SIDE, 1), level, np.uint16)
        write_png(tmp_path / f"{name}.png", [rows] * SIDE)
        assert (tmp_path / f"{name}.png").stat().st_size < 300_000
    for name, start, size in (
        ("nothing.png", b"", 8 * 2**30),
        ("nothing.webp", b"RIFF\0\0\0\0WEBPVP8 ", 2**30),
    ):
        with (tmp_path / name).open("wb") as file:
            file.write(start)
            file.truncate(size)
    answer = run_code(FIT.format(way), tmp_path, str(LIMIT))
    assert answer.code == 0, answer.err
    n_images, aside, peak = json.loads(answer.out.splitlines()[-1])
    assert n_images == 16
    assert sorted(aside) == ["another-bomb.png", "bomb.png", "nothing.png", "nothing.webp"]
    assert all("--max-memory leaves" in aside[name] for name in ("bomb.png", "another-bomb.png")), (
        aside
    )
    assert peak < LIMIT + ABOVE
