"""The command `flawsort backbones`: every network, on a wide terminal and a narrow one."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from flawsort.backbones import NETWORKS, catalogue
from flawsort.cli.backbones import show_backbones
from helpers.command_line import plain
from helpers.plates import Cli


def test_backbones(cli: Cli) -> None:
    told = json.loads(cli("backbones", "--json").out)
    assert [entry["name"] for entry in told] == [*catalogue(), *NETWORKS]
    assert told[0].keys() == {
        "name", "file", "sha256", "licence", "origin", "input_size", "state", "dim", "grid",
        "bytes",
    }  # fmt: skip
    assert told[1].keys() == {*told[0], "pooling_kernel"}
    assert [entry["state"] for entry in told[:2]] == ["verified"] * 2
    assert (told[1]["dim"], told[1]["grid"]) == (256, [16, 16])
    text = cli("backbones").out
    assert told[0]["sha256"] in text
    assert told[1]["sha256"] in text
    assert "--backbone PATH.onnx" in text
    assert told[-1].keys() == {
        "name", "model", "licence", "input_size", "dim", "grid", "state",
    }  # fmt: skip
    assert all(name in text for name in NETWORKS)


@pytest.mark.parametrize("columns", [60, 80])
def test_backbones_on_a_terminal(
    terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    told = [
        {
            "name": name,
            "model": network.model,
            "licence": network.licence,
            "input_size": [256, 256],
            "dim": 1024,
            "grid": [32, 32],
            "state": "needs flawsort[torch]",
        }
        for name, network in NETWORKS.items()
    ]
    terminal(columns)
    show_backbones(told)
    text = plain(capsys.readouterr().out)
    lines = [line.rstrip() for line in text.splitlines()]
    assert text.count("needs flawsort[torch]") == 1
    for entry in told:
        start, end = f"{entry['name']} ", f"256 x 256   1024  32 x 32  {entry['licence']}"
        assert sum(line.startswith(start) and line.endswith(end) for line in lines) == 1
    assert "(terminal too narrow for model; --json has all columns)" in lines
    assert max(map(len, lines)) <= 80
