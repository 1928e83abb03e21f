"""Values of images from a CSV file. The tables of truth and of periods are tested with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from flawsort.core.errors import InputError
from flawsort.core.records import RemoteFile
from flawsort.images.lookup import Columns, Lookup, local_path, only, read_lookup

COLUMNS = Columns("weights", ("file", "name"), ("grams", "kilos"))


def read(path: Path, text: str) -> Lookup:
    path.write_text(text, encoding="utf-8", newline="")
    return read_lookup(path, COLUMNS)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_columns_are_found_by_any_of_their_names(tmp_path: Path, separator: str) -> None:
    rows = ["Kilos|x| NAME |Grams", "1|a|one.png| 7 ", "2|b|two.png|", "3|c||9", "|d|three.png|8"]
    text = "\ufeff" + "\r\n".join(rows).replace("|", separator)
    found = read(tmp_path / "t.csv", text)
    assert found.column == "grams"
    assert found.rows == (("one.png", "7"), ("three.png", "8"))


def test_the_first_name_of_a_column_goes_before_the_others(tmp_path: Path) -> None:
    found = read(tmp_path / "t.csv", "name,file,kilos\na,b,1\n")
    assert (found.column, found.rows) == ("kilos", (("b", "1"),))


def test_images_are_found_by_path_then_by_name_then_by_a_base_name(tmp_path: Path) -> None:
    here = tmp_path / "lots"
    rows = (
        (str(tmp_path / "x" / "a.png"), "absolute"),
        ("b.png", "beside the table"),
        ("one\\c.png", "name"),
        ("elsewhere/d.png", "base"),
        ("./e.png", "first"),
        ("e.png", "second"),
        ("both.png", "of two images"),
        ("f/g.png", "of two rows"),
        ("h/g.png", "of two rows"),
    )
    table = Lookup(here / "t.csv", "grams", rows)
    expected = {
        "1": (tmp_path / "x" / "a.png", "absolute"),
        "2": (str(here / "b.png"), "beside the table"),
        "one/c.png": ("", "name"),
        "two/d.png": ("", "base"),
        "e.png": ("", None),
        "one/both.png": ("", None),
        "two/both.png": ("", None),
        "g.png": ("", None),
        "nothing.png": (RemoteFile("s3://a/b.png"), None),
    }
    sources = [source for source, _ in expected.values()]
    assert table.values_of(list(expected), sources) == [value for _, value in expected.values()]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("truth", r"The truth '.*t\.csv' is not a CSV file: .*\. Save it as CSV in UTF-8\."),
        ("lots", r"The lots '.*t\.csv' are not a CSV file: .*\. Save them as CSV in UTF-8\."),
    ],
)
def test_messages_name_what_the_file_should_have(tmp_path: Path, what: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text("name,lot\n" + "x" * 200_000 + ",1\n")
    with pytest.raises(InputError, match=message):
        read_lookup(path, Columns(what, ("name",), ("lot",)))
    with pytest.raises(InputError, match=rf"The {what} '.*t\.csv' must have a column file or path "
                       r"and a column lot\. Got name, lot\."):  # fmt: skip
        read_lookup(path, Columns(what, ("file", "path"), ("lot",)))
    with pytest.raises(InputError, match=rf"The {what} '.*gone\.csv' cannot be read: .*No such "):
        read_lookup(tmp_path / "gone.csv", Columns(what, (), ()))


def test_the_file_of_an_image() -> None:
    assert local_path(Path("a.png")) == local_path("a.png") == Path("a.png")
    for source in ("", "s3://a/b.png", RemoteFile("s3://a/b.png"), np.zeros((2, 2), np.uint8)):
        assert local_path(source) is None


def test_one_value_or_none() -> None:
    assert only({"a"}) == "a"
    assert only({"a", "b"}) is only(set()) is only(None) is None
