"""A run against true labels: where the result cannot be written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flawsort import OptionError
from flawsort.research.evaluate import evaluate_run
from helpers import faults
from helpers.faults import Fault, watched


def test_a_run_that_cannot_be_written(tmp_path: Path, saved: Path) -> None:
    shutil.copytree(saved, tmp_path / "run")
    (tmp_path / "truth.csv").write_text("path,label\ndent00.png,dent\nstreak07.png,streak\n")
    told = r"Cannot write '.*run/evaluation.json': Permission denied\. .* evaluate the copy\.$"
    closed = Fault(tmp_path, faults.error("EACCES"), 0, lasting=True)
    with watched(closed), pytest.raises(OptionError, match=told):
        evaluate_run(tmp_path / "run", tmp_path / "truth.csv")
