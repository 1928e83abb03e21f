"""Images on their way: private, bounded, and gone afterwards."""

from __future__ import annotations

import base64
import os
import signal
import stat
import tempfile
from pathlib import Path

import pytest

from flawsort import InputError
from flawsort.core.temporaries import clear_abandoned
from flawsort.daily.uploads import (
    Allowance,
    Busy,
    Upload,
    as_files,
    decoded,
    shown_name,
)
from helpers.plates import LONG, start

HOLDS = """
import time
from flawsort.daily.uploads import Upload, as_files

with as_files([Upload("a", b"secret")]) as images:
    print(images.sources or images.set_aside, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


class TestFiles:
    def test_they_are_there_for_a_moment(self, place: Path) -> None:
        sent = [Upload("x", b"one"), Upload("x", b""), Upload("y", b"one")]
        with as_files(sent) as images:
            assert images.names == ("0", "2")
            assert [Path(str(one)).read_bytes() for one in images.sources] == [b"one", b"one"]
            assert images.digests[0] == images.digests[1]
            assert [(one.name, one.reason) for one in images.set_aside] == [
                ("1", "is empty (0 bytes)")
            ]
            (folder,) = place.iterdir()
            if os.name == "posix":
                assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            clear_abandoned()  # as another service does when it begins
            assert folder.exists()
        assert list(place.iterdir()) == []

    def test_nobody_can_guess_where(self, place: Path) -> None:
        found = set()
        for _ in range(3):
            with as_files([Upload("x", b"one")]):
                (folder,) = place.iterdir()
                found.add(folder.name.partition(".partial")[0])
        assert len(found) == 3

    def test_also_after_an_error(self, place: Path) -> None:
        with pytest.raises(KeyError), as_files([Upload("x", b"one")]):
            raise KeyError
        assert list(place.iterdir()) == []

    @pytest.mark.skipif(os.name != "posix", reason="needs the signals of POSIX")
    def test_what_a_killed_process_left_is_removed(self, place: Path) -> None:
        process = start(HOLDS, TMPDIR=str(place))
        assert process.stdout is not None
        assert "Path" in process.stdout.readline()
        (left,) = place.iterdir()
        assert [one.read_bytes() for one in left.iterdir()] == [b"secret"]
        clear_abandoned()
        assert left.exists()  # the other one lives
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=LONG)
        clear_abandoned()
        assert not left.exists()


class TestAllowance:
    def test_no_more_than_there_is(self) -> None:
        room = Allowance(10, "full")
        with room.holding() as one, room.holding() as other:
            one.add(6)
            with pytest.raises(Busy, match=r"^full$"):
                other.add(5)
            other.add(4)
            assert room.held == 10
        assert room.held == 0

    def test_given_back_after_an_error(self) -> None:
        room = Allowance(10, "full")

        def fail() -> None:
            with room.holding() as one:
                one.add(7)
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        assert room.held == 0


@pytest.mark.parametrize("begin", ["", "data:image/png;base64,"])
def test_base64(begin: str) -> None:
    text = begin + base64.b64encode(b"\x00\xff it").decode()
    assert decoded("a", text) == Upload("a", b"\x00\xff it")


@pytest.mark.parametrize("text", ["a", "####", "\u00e9\u00e9\u00e9\u00e9", "aGVs bG8="])
def test_what_is_no_base64(text: str) -> None:
    with pytest.raises(InputError, match=r"^content of 'a' must be base64"):
        decoded("a", text)


def test_a_name_can_always_be_printed() -> None:
    assert len(shown_name("x" * 10_000)) == 300
    shown_name("\ud800").encode()
