"""Which files of a watched folder are new, and complete."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flawsort.core.errors import InputError
from flawsort.daily.incoming import Incoming, hashed


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def looking(folder: Path, clock: Clock, done: set[bytes] | None = None) -> Incoming:
    known = set() if done is None else done
    return Incoming([folder], known.__contains__, settle=2.0, now=clock)


def names(incoming: Incoming) -> list[str]:
    return [one.name for one in incoming.look()]


def test_a_file_that_is_still_written_is_waited_for(tmp_path: Path, clock: Clock) -> None:
    incoming, file = looking(tmp_path, clock), tmp_path / "a.png"
    file.write_bytes(b"half")
    assert names(incoming) == []
    for size in (5, 6, 7):  # it grows for longer than any file is waited for
        clock.now += 1.5
        file.write_bytes(b"x" * size)
        assert names(incoming) == []
        assert incoming.waiting == 1
    clock.now += 1.9
    assert names(incoming) == []
    clock.now += 0.1
    assert names(incoming) == ["a.png"]
    assert incoming.waiting == 0


def test_a_file_that_was_there_long_before_is_looked_at_twice(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    incoming = Incoming([tmp_path], set[bytes]().__contains__, settle=0.0, now=clock)
    assert names(incoming) == []
    assert names(incoming) == ["a.png"]


def test_what_is_done_is_never_found_again(tmp_path: Path, clock: Clock) -> None:
    done: set[bytes] = set()
    incoming, file = looking(tmp_path, clock, done), tmp_path / "sub" / "a.png"
    file.parent.mkdir()
    file.write_bytes(b"x")
    incoming.look()
    clock.now += 2
    found = incoming.look()
    assert [one.name for one in found] == ["sub/a.png"]
    done.update(one.stamp for one in found)
    clock.now += 2
    assert names(incoming) == []
    file.write_bytes(b"another image")  # another size is another file
    assert names(incoming) == []
    clock.now += 2
    assert names(incoming) == ["sub/a.png"]


def test_those_that_changed_first_come_first(tmp_path: Path, clock: Clock) -> None:
    for number, name in enumerate(("c.png", "a.png", "b.png")):
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (number, number))
    incoming = looking(tmp_path, clock)
    incoming.look()
    clock.now += 2
    assert names(incoming) == ["c.png", "a.png", "b.png"]


def test_other_files_are_counted_once_for_each_kind(tmp_path: Path, clock: Clock) -> None:
    incoming = looking(tmp_path, clock)
    for name in ("a.png", "b.mp4", "c.MP4", "notes.txt", ".hidden.txt"):
        (tmp_path / name).write_bytes(b"x")
    incoming.look()
    said = incoming.skipped()
    assert said.startswith("Skipped 3 files: 2 MP4 (cut it into frames: ")
    assert said.endswith(", 1 TXT.")
    (tmp_path / "d.mp4").write_bytes(b"x")
    incoming.look()
    assert incoming.skipped() == ""
    (tmp_path / "e.zip").write_bytes(b"x")
    incoming.look()
    assert incoming.skipped() == "Skipped 1 file: 1 ZIP."
    assert incoming.problems() == []


def test_a_folder_that_goes_away_and_comes_back(tmp_path: Path, clock: Clock) -> None:
    folder = tmp_path / "drive"
    folder.mkdir()
    incoming = looking(folder, clock)
    folder.rmdir()
    assert names(incoming) == []
    assert incoming.problems() == [f"{folder}: the folder is not there now"]
    incoming.look()
    assert incoming.problems() == []  # said once
    folder.mkdir()
    (folder / "a.png").write_bytes(b"x")
    incoming.look()
    clock.now += 2
    assert names(incoming) == ["a.png"]


def test_a_folder_that_is_not_there(tmp_path: Path, clock: Clock) -> None:
    with pytest.raises(InputError, match="The folder to watch must exist"):
        looking(tmp_path / "none", clock)


def test_a_file_that_changes_while_it_is_read_is_left_for_later(
    tmp_path: Path, clock: Clock
) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    (tmp_path / "b.png").write_bytes(b"y")
    incoming = looking(tmp_path, clock)
    incoming.look()
    clock.now += 2
    found = incoming.look()
    (tmp_path / "a.png").write_bytes(b"more")
    images, good, bad = hashed(found)
    assert images.names == ("b.png",)
    assert [one.name for one in good] == ["b.png"]
    assert bad == []
