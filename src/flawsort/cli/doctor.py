"""The command `flawsort doctor`: what a report of a bug should say about a machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from flawsort.cli import console
from flawsort.cli.options import Json

# The exit code if something is wrong.
UNWELL = 1


def doctor(as_json: Json = False) -> None:
    """Check the installation, for a report of a bug. Shows versions, devices, the cache and whether
    the backbones work. Exits with 1 if something is wrong."""
    found = examine()
    if as_json:
        console.print_json(found)
    else:
        show_examination(found)
    if found["problems"]:
        raise typer.Exit(UNWELL)


def examine() -> dict[str, Any]:
    """Everything as values for JSON. Paths in the user's folder begin with ~, so that the result
    names nobody."""
    import platform

    from flawsort._version import __version__
    from flawsort.cli.backbones import list_backbones
    from flawsort.core.machine import memory
    from flawsort.core.threads import n_threads

    backbones = {entry["name"]: entry["state"] for entry in list_backbones() if "sha256" in entry}
    cache, trouble = _cache()
    return {
        "flawsort": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "packages": _packages(),
        "processors": n_threads(),
        "memory": memory(),
        "gpus": _gpus(),
        "cache": cache,
        "backbones": backbones,
        "browser": _browser(),
        "problems": [
            *trouble,
            *(f"{name}: {state}" for name, state in backbones.items() if state != "verified"),
        ],
    }


def _packages() -> dict[str, str | None]:
    """The versions of the packages that flawsort needs or can use; None if not installed."""
    import re
    from importlib.metadata import PackageNotFoundError, requires, version

    found: dict[str, str | None] = {}
    for line in requires("flawsort") or []:
        needed, _, condition = line.partition(";")
        if any(extra in condition for extra in ("'test'", "'dev'", '"test"', '"dev"')):
            continue
        name = re.split(r"[\[<>=!~ ]", needed, maxsplit=1)[0]
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _gpus() -> list[dict[str, Any]]:
    """The GPUs that torch can use."""
    from flawsort.core.devices import GPUS, torch_device

    found = []
    for kind, gpu in GPUS.items():
        for number in range(gpu.count()):
            device = torch_device(f"{kind}:{number}")
            free, total = gpu.memory(device)
            found.append(
                {"device": str(device), "model": gpu.model(device), "free": free, "memory": total}
            )
    return found


def _cache() -> tuple[dict[str, Any], list[str]]:
    """The user's cache, and what is wrong with it."""
    import shutil

    from flawsort.backbones.cache import default_cache_folder
    from flawsort.cli.cache import look_at_cache
    from flawsort.core.storage import try_writing

    folder = default_cache_folder()
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    found = {
        "folder": _without_home(folder),
        "size": look_at_cache(None)["size"],
        "free": shutil.disk_usage(there).free,
    }
    try:
        try_writing(folder / "probe")
    except OSError as error:
        return found, [f"The cache cannot be written: {error.strerror or error}."]
    return found, []


def _browser() -> str | None:
    """The browser that prints PDF files."""
    from flawsort.core.errors import OptionError
    from flawsort.outputs.printing import find_browser

    try:
        return _without_home(Path(find_browser()))
    except OptionError:
        return None


def _without_home(path: Path) -> str:
    try:
        return str(Path("~") / path.absolute().relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(path)


def show_examination(found: dict[str, Any]) -> None:
    """Print a line for each fact."""
    from flawsort.core.text import shown_size

    console.say(f"flawsort {found['flawsort']}, Python {found['python']}, {found['system']}")
    memory = f", {shown_size(found['memory'])} of memory" if found["memory"] else ""
    console.say(f"processors: {found['processors']}{memory}")
    for gpu in found["gpus"]:
        console.say(
            f"{gpu['device']}: {gpu['model']}, {shown_size(gpu['free'])} free of "
            f"{shown_size(gpu['memory'])}"
        )
    if not found["gpus"]:
        console.say("GPU: none that torch can use")
    console.say(f"browser for PDF files: {found['browser'] or 'none'}")
    cache = found["cache"]
    console.say(
        f"cache: {cache['folder']}, {shown_size(cache['size'])}, {shown_size(cache['free'])} free "
        "on the disk"
    )
    for name, state in found["backbones"].items():
        console.say(f"backbone {name}: {state}")
    console.say()
    console.print_table(
        "",
        ["package", "version"],
        [[name, version or "not installed"] for name, version in found["packages"].items()],
    )
    console.say()
    for problem in found["problems"]:
        console.say(f"Problem: {problem}")
    if not found["problems"]:
        console.say("Nothing is wrong.")
    sys.stdout.flush()
