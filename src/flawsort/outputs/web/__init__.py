"""What the report and the review share: scripts as ES modules, and styles.

The review serves them unchanged beside its own scripts. The report is one file: `bundle` joins its
modules and their imports into one script.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files

from flawsort.labels.groups import COLOURS, NO_GROUP, SHAPES

MAX_K = 60
"""The maximum of the slider for the number of groups, unless a run has more groups."""

SCRIPTS = (
    "conditions.js", "difference.js", "dom.js", "filterbar.js", "filterfields.js", "filterpanel.js",
    "imagecolumns.js", "map.js", "marks.js", "modal.js", "outline.js", "palette.js", "search.js",
    "tree.js", "zoom.js",
)  # fmt: skip
STYLES = ("filters.css", "looking.css")

_IMPORT = re.compile(r'^import \{ ((?:[\w$]+, )*[\w$]+) \} from "\./(\w+\.js)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|class|const) ([\w$]+))", re.MULTILINE)


def k_span(n: int, saved: int) -> dict[str, int]:
    """The number of groups of a run of n images: as saved, and the limits of a slider."""
    return {"saved": saved, "min": min(2, saved, n), "max": max(min(n, MAX_K), saved)}


def shared_scripts() -> dict[str, str]:
    """The modules by name."""
    return {name: shared_script(name) for name in SCRIPTS}


def shared_style(name: str) -> str:
    """A style of STYLES, for what the shared scripts make."""
    return _source(name)


def shared_script(name: str) -> str:
    """A module of SCRIPTS. The colours and shapes of groups come from Python."""
    if name != "palette.js":
        return _source(name)
    values = {"COLOURS": COLOURS, "SHAPES": SHAPES, "NO_GROUP": NO_GROUP}
    return "".join(f"export const {name} = {json.dumps(v)};\n" for name, v in values.items())


def script_policy(script: str) -> str:
    """The content security policy of a page that is one file: it runs only this script and fetches
    nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def bundle(entry: str, modules: Mapping[str, str]) -> str:
    """A module and all its imports as one plain script, each module in its own scope.

    modules: the texts by name. Supports only the forms that these scripts use: lines such as
    `import { a, b } from "./c.js";`, and `export` before a function, a class or a const. Raises
    ValueError for other forms, for a missing module, and for circular imports.
    """
    order: list[str] = []
    _visit(entry, modules, order, ())
    parts = [_scoped(name, modules[name]) for name in order]
    return "\n".join(['"use strict";', "(() => {", *parts, "})();", ""])


def _source(name: str) -> str:
    return files("flawsort.outputs.web").joinpath(name).read_text("utf-8")


def _visit(name: str, modules: Mapping[str, str], order: list[str], path: tuple[str, ...]) -> None:
    """Add a module to the order, after those that it imports."""
    if name in path or name not in modules:
        reason = "imports it in turn" if name in path else "is not there"
        raise ValueError(f"{' imports '.join((*path, name))}, which {reason}.")
    for _, imported in _IMPORT.findall(modules[name]):
        if imported not in order:
            _visit(imported, modules, order, (*path, name))
    order.append(name)


def _scoped(name: str, text: str) -> str:
    exported = ", ".join(_EXPORT.findall(text))
    body = _EXPORT.sub(
        "", _IMPORT.sub(lambda found: f"const {{ {found[1]} }} = {_variable(found[2])};", text)
    )
    left = re.search(r"^(?:import|export)\b.*", body, re.MULTILINE)
    if left:
        raise ValueError(f"{name} has a line that cannot be bundled: {left[0]}")
    return f"const {_variable(name)} = (() => {{\n{body}return {{ {exported} }};\n}})();"


def _variable(name: str) -> str:
    return f"module_{name.removesuffix('.js')}"
