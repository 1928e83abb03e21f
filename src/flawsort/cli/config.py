"""The command `flawsort config`: shows the options of a project, and the file that has them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flawsort.cli import console
from flawsort.cli.options import Json
from flawsort.cli.project import FILE, find_project, places
from flawsort.core.errors import InputError
from flawsort.core.text import either

EXAMPLE = """\
device = "cpu"          # of every command that has --device

[cluster]
normal = ["good/"]      # files are named relative to this file
preset = "fast"
"""


def config(
    context: typer.Context,
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER",
            help="Images, or a run, of the project; the current folder if omitted.",
        ),
    ] = Path(),
    as_json: Json = False,
) -> None:
    """Show the options of the project. They are in the file flawsort.toml beside the images."""
    parent = context.parent
    commands = {} if parent is None else parent.command.commands  # type: ignore[attr-defined]
    result = read_config(folder, commands)
    if as_json:
        console.print_json(result)
    else:
        show_config(result)


def read_config(folder: Path, commands: dict[str, Any]) -> dict[str, Any]:
    """The file with the options, the folders that were searched for it, and the options of each
    command that has any, as one would type them. commands: of the command line, by name."""
    if not folder.exists():
        raise InputError(f"There is no '{folder}'. Name a folder of images or a run.")
    found = find_project([str(folder)], commands)
    words = {} if found is None else found.words
    return {
        "file": None if found is None else str(found.path),
        "searched": [str(place) for place in places([str(folder)])],
        "options": {command: list(line) for command, line in words.items() if line},
    }


def show_config(result: dict[str, Any]) -> None:
    """Print the options of each command, or how to write a file."""
    if result["file"] is None:
        searched = either(f"'{place}'" for place in result["searched"])
        console.say(f"There is no {FILE} in {searched}. An example of one:")
        console.say()
        for line in EXAMPLE.splitlines():
            console.say(f"    {line}")
        return
    console.say(f"Options of the project: {result['file']}")
    console.say()
    for command, words in result["options"].items():
        console.say(console.typed(["flawsort", command, *words]))
    console.say()
    console.say("Options in the command line replace these. --no-config leaves them out.")
