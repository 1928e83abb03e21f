"""Numbers and names in sentences."""

from __future__ import annotations

from flawsort.core.text import either, pluralise


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
