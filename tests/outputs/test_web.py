"""Scripts that report and review share: bundled into one script, with the colours of Python."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from flawsort.labels.groups import COLOURS, NO_GROUP, SHAPES
from flawsort.outputs.web import MAX_K, SCRIPTS, bundle, k_span, shared_script, shared_scripts

MODULES = {
    "main.js": (
        'import { twice } from "./arithmetic.js";\n'
        'import { Box, one } from "./things.js";\n'
        "const hidden = 5;\nconsole.log(twice(one) + hidden, new Box().size);\n"
    ),
    "things.js": (
        'import { twice } from "./arithmetic.js";\n'
        "const hidden = 100;\nexport const one = 1;\n"
        "export class Box { size = twice(hidden); }\n"
    ),
    "arithmetic.js": (
        "function hidden(value) { return 2 * value; }\n"
        "export function twice(value) { return hidden(value); }\n"
        "export async function never() {}\n"
    ),
}


def test_each_module_comes_once_and_after_those_it_imports() -> None:
    script = bundle("main.js", MODULES)
    assert script.startswith('"use strict";\n')
    order = re.findall(r"^const module_(\w+) = ", script, re.MULTILINE)
    assert order == ["arithmetic", "things", "main"]
    assert "return { twice, never };" in script
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)


@pytest.mark.skipif(shutil.which("node") is None, reason="no node on PATH")
def test_a_bundle_does_what_its_modules_do(tmp_path: Path) -> None:
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "bundle.cjs").write_text(bundle("main.js", MODULES))
    said = [
        subprocess.run(["node", tmp_path / name], capture_output=True, text=True, check=True).stdout
        for name in ("main.js", "bundle.cjs")
    ]
    assert said == ["7 200\n", "7 200\n"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('import { a as b } from "./things.js";', "a.js has a line that cannot be bundled: import"),
        ('import a from "./things.js";', "cannot be bundled: import a"),
        ("export default 3;", "cannot be bundled: export default"),
        ("export let changing = 3;", "cannot be bundled: export let"),
        ('export { one } from "./things.js";', "cannot be bundled: export {"),
        ('import { a } from "./nothing.js";', "a.js imports nothing.js, which is not there"),
        ('import { a } from "./a.js";', "a.js imports a.js, which imports it in turn"),
    ],
)
def test_what_cannot_be_bundled_is_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        bundle("a.js", {**MODULES, "a.js": f"{text}\n"})


def test_the_palette_is_that_of_python() -> None:
    found = dict(re.findall(r"^export const (\w+) = (.*);$", shared_script("palette.js"), re.M))
    assert {name: json.loads(value) for name, value in found.items()} == {
        "COLOURS": list(COLOURS),
        "SHAPES": list(SHAPES),
        "NO_GROUP": NO_GROUP,
    }
    for name in SCRIPTS:
        if name != "palette.js":
            assert not set(re.findall(r"#[0-9a-f]{6}\b", shared_script(name))) - {"#ffffff"}


def test_shared_scripts_import_each_other_alone() -> None:
    scripts = shared_scripts()
    assert tuple(scripts) == SCRIPTS
    for name in SCRIPTS:
        assert bundle(name, scripts)


@pytest.mark.parametrize(
    ("n", "saved", "expected"),
    [(1, 1, (1, 1)), (2, 1, (1, 2)), (40, 4, (2, 40)), (900, 4, (2, MAX_K)), (900, 88, (2, 88))],
)
def test_between_what_a_slider_goes(n: int, saved: int, expected: tuple[int, int]) -> None:
    assert k_span(n, saved) == {"saved": saved, "min": expected[0], "max": expected[1]}
