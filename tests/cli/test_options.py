"""Options that commands share: the name of one in an error, and headings of the help."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer

from flawsort.cli.options import PlainCommand, cache_folder
from flawsort.core.errors import BackboneError, FlawsortError, OptionError
from helpers.plates import Cli


def raising(error: FlawsortError) -> typer.Typer:
    """A command line with one command, which raises the error."""
    app = typer.Typer(rich_markup_mode=None)

    @app.command(cls=PlainCommand)
    def work(
        peers: Annotated[int, typer.Option("-p", "--peers")] = 3,
        image_size: int = 64,
        backbone_weights: Annotated[str, typer.Option("--weights")] = "",
    ) -> None:
        raise error

    return app


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OptionError("must be 2.", parameter="n_peers"), "--peers must be 2."),
        (BackboneError("must be 32.", parameter="image_size"), "--image-size must be 32."),
        (OptionError("must be a file.", parameter="backbone_weights"), "--weights must be a file."),
        (OptionError("must be odd.", parameter="kernel"), "kernel must be odd."),
        (OptionError("n_peers is a word here."), "n_peers is a word here."),
    ],
)
def test_an_error_names_the_option(error: FlawsortError, told: str) -> None:
    with pytest.raises(type(error)) as caught:
        raising(error)(args=[], standalone_mode=False)
    assert str(caught.value) == told


def test_a_short_help_is_one_list(cli: Cli) -> None:
    assert cli("demo", "--help").out.count(":\n") == 1
    assert cli("evaluate", "--help").out.count(":\n") == 2
    assert "Comparing images:" not in cli("assign", "--help").out  # of one option


def test_the_cache() -> None:
    assert cache_folder(None, no_cache=False) == "auto"
    assert cache_folder(None, no_cache=True) is None
