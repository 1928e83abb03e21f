"""Numbers and names in sentences."""

from __future__ import annotations

import os
import sys
from pathlib import Path, PureWindowsPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flawsort.core.text import clean, either, first_line, path_of, pluralise, printable


def test_counted() -> None:
    assert [pluralise(n, "image") for n in (0, 1, 2, 1234)] == [
        "0 images",
        "1 image",
        "2 images",
        "1,234 images",
    ]
    assert pluralise(0, "name", none="no") == "no names"
    assert pluralise(2, "entry") == "2 entries"
    assert pluralise(2, "day") == "2 days"


def test_one_of_several_names() -> None:
    assert either(["a"]) == "a"
    assert either("ab") == "a or b"
    assert either(name for name in "abc") == "a, b or c"


def test_clean() -> None:
    assert clean("plain \u00f6 \U0001f529") == "plain \u00f6 \U0001f529"
    assert clean("a\x00b\x1b[31m\n\x85\udcff\uffff") == "a\ufffdb\ufffd[31m" + "\ufffd" * 4
    assert clean(3) == "3"


def test_printable() -> None:
    assert printable(Path("lot 1") / "ö.png") == "lot 1/ö.png"
    assert printable(PureWindowsPath("lot\\a.png")) == "lot/a.png"
    assert printable("b\udcff") == "b\\udcff"


@pytest.mark.skipif(sys.platform != "linux", reason="names must be text there")
@given(st.binary(min_size=1, max_size=8).filter(lambda name: not set(name) & set(b"\0/")))
@example(b"caf\xe9")
@example("ö\\xe9".encode())
def test_the_bytes_of_a_path_come_back(name: bytes) -> None:
    path = Path("folder") / os.fsdecode(b"x" + name)
    text = printable(path)
    assert text.encode().decode() == text
    assert path_of(text) == path


@pytest.mark.skipif(sys.platform != "linux", reason="names must be text there")
def test_a_name_with_letters_that_stand_for_a_byte(tmp_path: Path) -> None:
    literal, byte = tmp_path / "\\udce9.png", tmp_path / "\udce9.png"
    assert path_of(str(literal)) == byte
    literal.touch()
    assert path_of(str(literal)) == literal


def test_first_line() -> None:
    assert first_line(ValueError("  it broke.\nand more")) == "it broke"
    assert first_line(ValueError()) == "ValueError"
    assert first_line(ValueError("x" * 999)) == "x" * 300
