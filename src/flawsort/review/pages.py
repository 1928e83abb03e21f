"""The pages of the review server from their templates, and the files beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from urllib.parse import quote

from jinja2 import Environment, FunctionLoader, StrictUndefined

from flawsort._version import __version__
from flawsort.core.errors import InputError
from flawsort.outputs.web import SCRIPTS, STYLES, shared_script, shared_style
from flawsort.review.schemas import RunEntryBody

_MEDIA_TYPES = {
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "woff2": "font/woff2",
}
_PROBLEM = """<!doctype html><html lang="en"><meta charset="utf-8"><title>flawsort</title>
<h1>{{ run }}</h1><p>{{ reason }}</p><p><a href="/">All runs</a></p></html>"""


def run_page(name: str, *, several: bool) -> str:
    """The page of a run. several: whether the server shows other runs, too."""
    return (
        _environment()
        .get_template("run.html")
        .render(
            run=name,
            base=f"/r/{quote(name, safe='')}/",
            several=several,
            scripts=sorted(name for name in (*_static_files(), *SCRIPTS) if name.endswith(".js")),
            version=static_version(),
            flawsort=__version__,
        )
    )


def runs_page(entries: Sequence[RunEntryBody]) -> str:
    """The list of runs."""
    return (
        _environment()
        .get_template("runs.html")
        .render(runs=entries, version=static_version(), flawsort=__version__)
    )


def problem_page(run: str, reason: str) -> str:
    """The page for a run that cannot be shown, with the reason."""
    return _environment().from_string(_PROBLEM).render(run=run, reason=reason)


def static_file(name: str) -> tuple[bytes, str]:
    """A static file and its media type. Only listed names are looked up."""
    if name in SCRIPTS:
        return shared_script(name).encode(), _MEDIA_TYPES["js"]
    if name in STYLES:
        return shared_style(name).encode(), _MEDIA_TYPES["css"]
    found = _static_files().get(name)
    if found is None:
        raise InputError("There is no such file.")
    return found.read_bytes(), _MEDIA_TYPES[name.rpartition(".")[2]]


def static_version() -> str:
    """Changes whenever any static file changes."""
    found = hashlib.sha256()
    for name in sorted([*_static_files(), *SCRIPTS, *STYLES]):
        found.update(f"{name}\n".encode() + static_file(name)[0])
    return found.hexdigest()[:16]


def _static_files() -> dict[str, Traversable]:
    return _below(files("flawsort.review").joinpath("static"))


def _below(folder: Traversable, prefix: str = "") -> dict[str, Traversable]:
    found: dict[str, Traversable] = {}
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir():
            found |= _below(entry, f"{prefix}{entry.name}/")
        elif entry.name.rpartition(".")[2] in _MEDIA_TYPES:
            found[f"{prefix}{entry.name}"] = entry
    return found


@cache
def _environment() -> Environment:
    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FunctionLoader(_template),
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _template(name: str) -> str:
    return files("flawsort.review").joinpath("templates", name).read_text("utf-8")
