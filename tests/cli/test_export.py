"""The command `flawsort export`: its help. What it writes is tested with the exports."""

from __future__ import annotations

import re

from flawsort.outputs.exports import FORMATS
from helpers.plates import Cli


def test_help_names_every_format(cli: Cli) -> None:
    words = re.findall(r"[\w-]+", cli("export", "--help").out)
    assert set(FORMATS) <= set(words)
