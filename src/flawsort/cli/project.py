"""The options of a project: flawsort.toml beside the images.

Options at the top of the file are for all commands that have them, those in [cluster] for that
command. The file is looked for in the folder of the images or the run, in the folder above it, and
in the current folder; the first one counts. Options in the command line replace those of the file.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flawsort.core.errors import OptionError
from flawsort.core.text import either

FILE = "flawsort.toml"
# Images may come from other people, with a file beside them. It must not remove or replace
# anything, let others in, run a program, read a URL or send anything.
BY_HAND = (
    "overwrite", "prune", "host", "token", "no_token", "exec", "execute", "post", "browser",
    "fetch", "address",
)  # fmt: skip
# Options for what is written without asking, with the metavar that they have there. Elsewhere than
# below the folder of the file it could replace anything.
REPLACING = {("output", "FILE"), ("pdf", "FILE"), ("heatmaps", "FOLDER")}
# The metavars of options that take files, and the options whose value may also be a word.
FILES = ("IMAGES", "FOLDER", "FILE", "PATH", "RUN", "CSV")
FILES_OR_WORDS = ("by", "roi", "backbone")


@dataclass(frozen=True)
class Project:
    """The options of a project. path: the file. options: of each command, the values of its
    parameters, as text or as flags. words: the same as the words of a command line."""

    path: Path
    options: Mapping[str, Mapping[str, Any]]
    words: Mapping[str, Sequence[str]]


def places(paths: Sequence[str]) -> list[Path]:
    """The folders that may hold the options of a project, the nearest first. paths: of the images
    or the run."""
    found = [Path()]
    local = next((path for path in paths if "://" not in path), None)
    if local is not None:
        fixed = re.split(r"[*?\[]", local, maxsplit=1)[0]
        # The folder of 'parts/**/*.png' is parts.
        place = Path(local if fixed == local else os.path.dirname(fixed))
        folder = place if place.is_dir() else place.parent
        found = [folder, Path(os.path.normpath(folder / os.pardir)), *found]
    distinct: dict[Path, Path] = {}
    for folder in found:
        distinct.setdefault(folder.resolve(), folder)
    return list(distinct.values())


def find_project(paths: Sequence[str], commands: Mapping[str, Any]) -> Project | None:
    """The options of the project that the paths belong to; None if no file has any. commands: of
    the command line, by name."""
    for folder in places(paths):
        if (folder / FILE).is_file():
            return read_project(folder / FILE, commands)
    return None


def read_project(path: Path, commands: Mapping[str, Any]) -> Project:
    """The options in a file. OptionError says what is wrong with them."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"'{path}' cannot be read as TOML: {error}.") from error
    known = {name: _options_of(command) for name, command in commands.items()}
    shared = {name: value for name, value in content.items() if not isinstance(value, dict)}
    _check_names(path, content, known)
    options: dict[str, dict[str, Any]] = {}
    words: dict[str, list[str]] = {}
    for command, accepted in known.items():
        own = {name: value for name, value in shared.items() if name in accepted}
        options[command], words[command] = {}, []
        for name, value in {**own, **content.get(command, {})}.items():
            parameter, when_on = accepted[name]
            checked = _checked(path, name, value, parameter)
            is_flag = isinstance(checked, bool)
            options[command][parameter.name] = checked == when_on if is_flag else checked
            words[command] += _words(parameter, options[command][parameter.name])
    return Project(path, options, words)


def _options_of(command: Any) -> dict[str, tuple[Any, bool]]:
    """The options that a file may have, by their names without dashes: the parameter, and its value
    if the option is a flag that is on."""
    return {
        option.removeprefix("--"): (parameter, when_on)
        for parameter in command.params
        if parameter.param_type_name == "option" and parameter.name not in ("help", *BY_HAND)
        for when_on, names in ((True, parameter.opts), (False, parameter.secondary_opts))
        for option in names
        if option.startswith("--")
    }


def _check_names(
    path: Path, content: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]
) -> None:
    """Refuse commands and options that do not exist, and those that people must give themselves."""
    everywhere = {option for options in known.values() for option in options}
    for name, value in content.items():
        table = isinstance(value, dict)
        if table and name not in known:
            raise OptionError(f"'{path}' has [{name}]. It must be one of {either(known)}.")
        for option in value if table else [name]:
            where = f" in [{name}]" if table else ""
            if option.replace("-", "_") in BY_HAND:
                raise OptionError(
                    f"'{path}' has {option}{where}. For safety this option must be given in the "
                    "command line."
                )
            accepted = known[name] if table else everywhere
            if option not in accepted:
                listed = f"It must be {either(sorted(accepted))}." if accepted else ""
                raise OptionError(f"'{path}' has {option}{where}. {listed}".rstrip())


def _checked(path: Path, name: str, value: Any, parameter: Any) -> Any:
    """A value as the command line would have it: text, a list of texts, or whether a flag is on."""
    if parameter.is_flag:
        if not isinstance(value, bool):
            raise OptionError(f"{name} in '{path}' must be true or false. Got {value!r}.")
        return value
    several = value if parameter.multiple and isinstance(value, list) else [value]
    if not all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in several):
        kind = "text, a number, or a list of them" if parameter.multiple else "text or a number"
        raise OptionError(f"{name} in '{path}' must be {kind}. Got {value!r}.")
    texts = [_located(path.parent, str(one), parameter) for one in several]
    for text in texts:
        _check_place(path, name, text, parameter)
    return texts if parameter.multiple else texts[0]


def _check_place(path: Path, name: str, text: str, parameter: Any) -> None:
    """Refuse a URL, and a place outside the folder of the file that would be written to."""
    if "://" in text:
        raise OptionError(
            f"'{path}' has {name} = '{text}'. For safety a URL must be given in the command line."
        )
    if (parameter.name, parameter.metavar) in REPLACING:
        folder = path.parent.resolve()
        # Where links lead counts: they may come with the images.
        if not Path(text).resolve().is_relative_to(folder):
            raise OptionError(
                f"'{path}' has {name} = '{text}'. For safety what is written to another place than "
                "the folder of the file must be named in the command line."
            )


def _located(folder: Path, text: str, parameter: Any) -> str:
    """A file is relative to the folder of the options."""
    if parameter.metavar in FILES and "://" not in text:
        return str(folder / text)
    if parameter.name in FILES_OR_WORDS:
        file, mark, part = text.partition("#")  # of a backbone's outputs
        return f"{folder / file}{mark}{part}" if (folder / file).is_file() else text
    return text


def _words(parameter: Any, value: Any) -> list[str]:
    """An option with its value as words of a command line."""
    if value is False:
        return list(parameter.secondary_opts[:1])
    name = max(parameter.opts, key=len)
    values = value if isinstance(value, list) else [value]
    return [name] if value is True else [word for one in values for word in (name, one)]
