"""Values of images from a CSV file. The tables of truth and of periods are tested with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flawsort.core.errors import InputError
from flawsort.core.records import RemoteFile
from flawsort.core.tables import csv_text
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
    matches = table.matches(list(expected), sources)
    assert matches == [(0,), (1,), (2,), (3,), (4, 5), (), (), (), ()]


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
    with pytest.raises(InputError, match=rf"The {what} '.*gone\.csv' do(es)? not exist\. Check"):
        read_lookup(tmp_path / "gone.csv", Columns(what, (), ()))
    with pytest.raises(InputError, match=rf"The {what} '.*' cannot be read: [^\[]*\.$"):
        read_lookup(tmp_path, Columns(what, (), ()))


NAMES = st.text(st.one_of(st.sampled_from("=+-@'\t\r\n;,\"\\ "), st.characters(codec="utf-8")))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=4, unique_by=lambda row: row[0]))
@example([("=cmd|' /C calc'!A0", "@sum(1)")])
@example([("\t\r=x", "'-1")])
@example([("caf\\xe9", "+")])
def test_a_table_that_flawsort_wrote_is_read_back_unchanged(
    tmp_path: Path, rows: list[tuple[str, str]]
) -> None:
    """Whatever files are called, and whatever their values are, but for white space at the end."""
    rows = [(f"{name}.png", f"{value}.") for name, value in rows if "\0" not in name + value]
    path = tmp_path / "t.csv"
    path.write_text(csv_text([("name", "grams"), *rows]), encoding="utf-8", newline="")
    found = read_lookup(path, COLUMNS)
    assert list(found.rows) == rows
    names = [name for name, _ in rows]
    if not any("/" in name or "\\" in name for name in names):
        assert found.values_of(names, [""] * len(names)) == [value for _, value in rows]


def test_a_backslash_in_a_name(tmp_path: Path) -> None:
    """As a name with bytes that are not UTF-8 has one."""
    found = read(tmp_path / "t.csv", "name,grams\ncaf\\xe9.png,1\nlot\\a.png,2\n")
    assert found.values_of(["caf\\xe9.png", "lot/a.png"], ["", ""]) == ["1", "2"]


def test_the_file_of_an_image() -> None:
    assert local_path(Path("a.png")) == local_path("a.png") == Path("a.png")
    for source in ("", "s3://a/b.png", RemoteFile("s3://a/b.png"), np.zeros((2, 2), np.uint8)):
        assert local_path(source) is None


def test_one_value_or_none() -> None:
    assert only({"a"}) == "a"
    assert only({"a", "b"}) is only(set()) is only(None) is None


def test_accents_are_one_or_two_characters(tmp_path: Path) -> None:
    """macOS may give names with accents of their own, and a table is written elsewhere."""
    one, two = "Gr\u00f6\u00dfe/\u00e4.png", "Gro\u0308\u00dfe/a\u0308.png"
    for written, name in ((one, two), (two, one)):
        table = Lookup(tmp_path / "t.csv", "grams", ((written, "7"),))
        assert table.values_of([name], [tmp_path / "x" / name]) == ["7"]
        assert table.values_of([f"elsewhere/{name}"], [""]) == ["7"]  # by its base name
    both = Lookup(tmp_path / "t.csv", "grams", ((one, "1"), (two, "2")))
    assert both.values_of([one, two], ["", ""]) == ["1", "2"]  # some systems tell them apart
