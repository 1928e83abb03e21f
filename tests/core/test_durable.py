"""What is acknowledged is on the disk: a power failure loses nothing of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from flawsort.core import durable
from flawsort.core.durable import flush, flush_folder, flush_names
from helpers import faults
from helpers.writers import all_writers

# What stays true afterwards. Everything else can be computed or exported again.
DURABLE = [
    "file", "run", "files of a run", "assigned batch", "assign table .csv", "table of the paper",
]  # fmt: skip
COMPUTED_AGAIN = ["bag", "part of a batch", "thumbnail", "export csv", "measurement of the paper"]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> faults.Disk:
    found = faults.Disk()
    monkeypatch.setattr(durable, "_sync", found.sync)
    return found


@pytest.mark.parametrize("name", DURABLE)
def test_what_is_kept_is_on_the_disk_before_it_takes_its_place(
    name: str, disk: faults.Disk, saved: Path, tmp_path: Path
) -> None:
    writer = all_writers(tmp_path / "parts", saved)[name]
    place = (tmp_path / "here").resolve()
    place.mkdir()
    writer.begin(place)
    for version in (0, 1) if writer.replaces else (0,):
        with disk.watching(place):
            writer.write(place, version)
        assert disk.moved
        assert disk.too_early == []
        assert disk.names_to_come == set()


@pytest.mark.parametrize("name", COMPUTED_AGAIN)
def test_nobody_waits_for_the_disk_for_what_can_be_computed_again(
    name: str, disk: faults.Disk, saved: Path, tmp_path: Path
) -> None:
    writer = all_writers(tmp_path / "parts", saved)[name]
    (tmp_path / "here").mkdir()
    writer.write(tmp_path / "here", 0)
    assert disk.synced == {}


class TestFlush:
    @pytest.fixture(autouse=True)
    def _really(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Asks the system, and notes what for."""
        self.asked: list[str] = []
        real = os.fsync

        def sync(file: int) -> None:
            self.asked.append(os.readlink(f"/proc/self/fd/{file}"))
            real(file)

        monkeypatch.setattr(durable, "_sync", sync)

    def test_files_and_folders(self, tmp_path: Path) -> None:
        (tmp_path / "a/b").mkdir(parents=True)
        (tmp_path / "a/one").write_text("1")
        (tmp_path / "a/b/two").write_text("2")
        flush_folder(tmp_path / "a")
        assert sorted(self.asked) == [
            str(tmp_path / name) for name in ("a", "a/b", "a/b/two", "a/one")
        ]
        flush(tmp_path / "a/one")
        flush_names(tmp_path / "a")
        assert self.asked[4:] == [str(tmp_path / "a/one"), str(tmp_path / "a")]

    @pytest.mark.parametrize(("code", "refused"), [(errno.EINVAL, False), (errno.EIO, True)])
    def test_errors(
        self, code: int, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(file: int) -> Any:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(durable, "_sync", fail)
        (tmp_path / "x").write_text("")
        flush_names(tmp_path)  # the file is there anyway
        if refused:
            with pytest.raises(OSError, match="Input/output error"):
                flush(tmp_path / "x")
        else:
            flush(tmp_path / "x")  # a file system that cannot say
