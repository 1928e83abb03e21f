"""What tests of several commands look at in an answer."""

from __future__ import annotations

import re

from helpers.plates import Answer

# Options that keep a run of the plates small: one small network.
SMALL = ("--preset", "fast", "--image-size", "64", "-q")


def plain(text: str) -> str:
    """What a terminal shows, without its colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def assert_refused(answer: Answer, message: str) -> None:
    assert answer.code == 2
    assert answer.out == ""
    assert re.fullmatch(r"flawsort: [^\n]*\n", answer.err)
    assert message in answer.err
