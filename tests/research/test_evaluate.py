"""A run against true labels: where the result cannot be written."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from flawsort import OptionError
from flawsort.research.evaluate import evaluate_run


def test_a_run_that_cannot_be_written(
    tmp_path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(saved, tmp_path / "run")
    (tmp_path / "truth.csv").write_text("path,label\ndent00.png,dent\nstreak07.png,streak\n")

    def closed(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "write_text", closed)
    told = r"Cannot write '.*run/evaluation.json': Permission denied\. .* evaluate the copy\.$"
    with pytest.raises(OptionError, match=told):
        evaluate_run(tmp_path / "run", tmp_path / "truth.csv")
