"""Labels that are known before a run: from a CSV file, from Python, and in folders of examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flawsort import InputError
from flawsort.core.records import ImageSet
from flawsort.labels.known import KnownLabels, find_examples, given_labels, read_labels
from helpers.plates import write_plates

NAMES = ("a/1.png", "a/2.png", "b/1.png", "b/3.png")


def images(digests: str = "wxyz") -> ImageSet:
    return ImageSet(NAMES, tuple(Path("/parts") / name for name in NAMES), tuple(digests))


def read(folder: Path, text: str, digests: str = "wxyz") -> KnownLabels:
    path = folder / "known.csv"
    path.write_text(text, encoding="utf-8")
    return read_labels(path, images(digests))


@pytest.mark.parametrize("column", ["path", "name"])
def test_labels_of_some_images(tmp_path: Path, column: str) -> None:
    rows = "/parts/a/1.png,dent\nb/3.png,Good\n2.png, long streak \nb/1.png,\n"
    found = read(tmp_path, f"{column},label\n{rows}")
    assert found.by_content == {"w": "dent", "z": "normal", "x": "long streak"}
    assert found.notes == ()


def test_rows_about_other_images_are_a_note(tmp_path: Path) -> None:
    one = read(tmp_path, "name,label\na/1.png,dent\nc/9.png,dent\n")
    assert one.by_content == {"w": "dent"}
    assert one.notes == (
        f"1 row of {tmp_path / 'known.csv'} is about no image of this run, 'c/9.png'.",
    )
    two = read(tmp_path, "name,label\nd.png,cut\na/1.png,dent\nc/9.png,dent\n")
    assert two.notes == (
        f"2 rows of {tmp_path / 'known.csv'} are about no image of this run, the first 'd.png'.",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,kind\na/1.png,dent\n",
         r"labels '.*known\.csv' must have a column path or name and a column label\. Got name, k"),
        ("label\ndent\n", r"must have a column path or name and a column label\. Got label\."),
        ("name,label\nc.png,dent\nd.png,cut\n",
         r"None of the 2 rows with a label in '.*known\.csv', such as 'c\.png', is one of the 4 "
         r"images\. .* Check that it is about them\."),
        ("name,label\na/1.png,\n", r"The labels '.*known\.csv' have no row with a label\."),
        ("name,label\na/1.png,dent\n./a/1.png,cut\n",
         r"have two labels for 'a/1\.png': 'cut' and 'dent'\. Keep one of them\."),
        ("name,label\na/1.png,a\x07b\n",
         r"The label of 'a/1\.png' cannot name a group: name must be one line without control "),
        ("name,label\na/1.png,Unsure\n",
         r"of 'a/1\.png' cannot name a group: name: 'Unsure' has a meaning of its own\. Choose "),
        ("name,label\na/1.png,Dent\na/2.png,dent\n",
         r"Labels must not differ in case only\. Got 'Dent' and 'dent': write both in the same "),
    ],
)  # fmt: skip
def test_refuses(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


def test_both_words_for_normal_are_one_label(tmp_path: Path) -> None:
    found = read(tmp_path, "name,label\na/1.png,good\na/1.png,Normal\n")
    assert found.by_content == {"w": "normal"}


def test_copies_with_different_labels_do_not_count(tmp_path: Path) -> None:
    found = read(tmp_path, "name,label\na/1.png,dent\na/2.png,cut\nb/1.png,dent\n", "wwyz")
    assert found.by_content == {"y": "dent"}
    assert found.notes == (
        "a/1.png and a/2.png are copies of one image with different labels, so neither counts.",
    )
    same = read(tmp_path, "name,label\na/1.png,dent\na/2.png,dent\n", "wwyz")
    assert same == KnownLabels({"w": "dent"})


@pytest.mark.parametrize(
    "given",
    [
        ["dent", None, "good", ""],
        np.array(["dent", None, "good", float("nan")], object),
        np.array(["dent", "", "good", ""]),
        {"a/1.png": "dent", "b/1.png": "Normal", "b/3.png": None},
    ],
)
def test_labels_from_python(given: Any) -> None:
    found = given_labels(given, images(), range(4))
    assert found == KnownLabels({"w": "dent", "y": "normal"})


def test_places_of_labels() -> None:
    labels = [None, "cut", "dent", None, "streak"]
    assert given_labels(labels, images(), [4, 2, 0, 1]).by_content == {
        "w": "streak", "x": "dent", "z": "cut",
    }  # fmt: skip


def test_refuses_from_python() -> None:
    message = r"Labels must be text, or None where unknown\. Got 3 for 'a/2\.png'\."
    with pytest.raises(InputError, match=message):
        given_labels(["dent", 3, None, None], images(), range(4))
    message = (
        r"2 of the 3 names with a label are not among the 4 images, the first 'c\.png'\. Names are "
        r"paths below the folder of the images, such as 'a/1\.png'\."
    )
    with pytest.raises(InputError, match=message):
        given_labels({"c.png": "x", "a/1.png": "y", "d.png": "z"}, images(), range(4))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["dent", "new kind", None, None], "'new kind' has a meaning of its own"),
        (["dent", None, None, "DENT"], "differ in case only. Got 'dent' and 'DENT'"),
    ],
)
def test_refuses_names_as_the_review_does(labels: list[str | None], message: str) -> None:
    with pytest.raises(InputError, match=message):
        given_labels(labels, images(), range(4))


@pytest.mark.parametrize(
    ("other", "message"), [("unsure", "has a meaning"), ("LONG streak", "differ in case only")]
)
def test_refuses_names_of_folders(tmp_path: Path, other: str, message: str) -> None:
    write_plates(tmp_path / "kinds" / "long streak", ["streak"])
    write_plates(tmp_path / "kinds" / other, ["dent"])
    with pytest.raises(InputError, match=message):
        find_examples(tmp_path / "kinds")


def test_examples(tmp_path: Path) -> None:
    write_plates(tmp_path / "kinds" / "long streak" / "deep", ["streak"] * 2)
    write_plates(tmp_path / "kinds" / "GOOD", ["good"])
    found = find_examples(tmp_path / "kinds")
    assert found.images.names == (
        "GOOD/good00.png", "long streak/deep/streak00.png", "long streak/deep/streak01.png",
    )  # fmt: skip
    assert found.labels == ("normal", "long streak", "long streak")
    assert found.notes == ()
    (tmp_path / "kinds" / "GOOD" / "good00.png").rename(tmp_path / "kinds" / "loose.png")
    found = find_examples(tmp_path / "kinds")
    assert found.labels == ("long streak",) * 2
    assert found.notes == (
        f"1 example directly in {tmp_path / 'kinds'} is in no folder of a kind, and not used: "
        "loose.png",
    )


def test_refuses_examples(tmp_path: Path) -> None:
    write_plates(tmp_path / "flat", ["dent"] * 2)
    message = r"'.*flat' must hold a folder of images for each kind\. Got 2 images and no folder of"
    with pytest.raises(InputError, match=message):
        find_examples(tmp_path / "flat")
    with pytest.raises(InputError, match=r"'.*gone' must be a folder .* It is not a folder\."):
        find_examples(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"No images under '.*empty/'"):
        find_examples(tmp_path / "empty")
