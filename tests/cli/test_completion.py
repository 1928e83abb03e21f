"""The completion of a shell: its script, and the words that it offers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flawsort.outputs.exports import FORMATS
from helpers.plates import LONG, MAIN, run_code


def offered(*words: str) -> list[str]:
    """What bash offers for the last of the words."""
    answer = run_code(
        "import sys; sys.argv = ['flawsort']\n" + MAIN,
        _FLAWSORT_COMPLETE="complete_bash",
        COMP_WORDS="\n".join(["flawsort", *words]),
        COMP_CWORD=str(len(words)),
    )
    assert (answer.code, answer.err) == (0, "")
    return answer.out.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("ex",), ["export"]),
        (("cluster", "parts", "--pre"), ["--preset"]),
        (("cluster", "parts", "--preset", "f"), ["fast"]),
        (("export", "run", "--format", ""), list(FORMATS)),
        (("export", "run", "--link", "l"), ["link"]),
        (("assign", "parts", "--by", ""), ["day", "week", "month", "folder"]),
    ],
    ids=" ".join,
)
def test_words(words: tuple[str, ...], expected: list[str]) -> None:
    assert offered(*words) == expected


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell of Unix")
def test_it_is_installed_for_the_shell(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    command = f"'{sys.executable}' -c 'from flawsort.cli import main; main()' --install-completion"
    # A second command keeps the shell from handing over its process to the first.
    answer = subprocess.run(
        [bash, "-c", f"{command}; echo done"],
        env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=LONG,
        check=True,
    )
    assert "bash completion installed" in answer.stdout, answer.stderr
    script = (tmp_path / ".bash_completions" / "flawsort.sh").read_text()
    assert "complete -o default -F _flawsort_completion flawsort" in script
    assert "flawsort.sh" in (tmp_path / ".bashrc").read_text()
