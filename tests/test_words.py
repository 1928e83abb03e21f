"""Numbers in sentences."""

from __future__ import annotations

from flawsort.words import counted


def test_counted() -> None:
    assert [counted(n, "image") for n in (0, 1, 2, 1234)] == [
        "0 images",
        "1 image",
        "2 images",
        "1,234 images",
    ]
    assert counted(0, "name", none="no") == "no names"
    assert counted(2, "entry") == "2 entries"
    assert counted(2, "day") == "2 days"
