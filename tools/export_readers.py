"""Read all exports back with the programs that read their formats, in an environment of its own.

python tools/export_readers.py [--all] needs pip's index. It installs the packages of the extra
`readers`, without those that bring gigabytes (ultralytics needs torch, fiftyone a database): --all
installs these, too, each in an environment of its own, since some want other versions than others.
If packages cannot be installed, it says that nothing was read with them, and ends with 0; with 1 if
a test fails.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from other_pythons import ROOT, environment

HEAVY = ("ultralytics", "fiftyone")
TESTS = "tests/outputs/exports/test_readers.py"


def readers() -> dict[str, str]:
    """What the extra asks for, by the name of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = project["optional-dependencies"]["readers"]
    return {re.split(r"[<>=!~\[; ]", line)[0]: line for line in asked}


def read_with(names: list[str]) -> bool:
    """Whether the tests pass with these packages."""
    wanted = readers()
    with tempfile.TemporaryDirectory() as folder:
        python = environment(
            Path(sys.executable), folder, [".[test]", *(wanted[name] for name in names)]
        )
        if python is None:
            print(f"{', '.join(names)} could not be installed: exports were NOT read with them")
            return True
        code = "import importlib.metadata as m, sys\nfor n in sys.argv[1:]: print(n, m.version(n))"
        subprocess.run([python, "-c", code, *names], check=True)
        words = [python, "-m", "pytest", "-n0", "--quiet", "-p", "no:cacheprovider", TESTS]
        return subprocess.run(words, cwd=ROOT).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help=f"also {' and '.join(HEAVY)}")
    light = [name for name in readers() if name not in HEAVY]
    sets = [light, *([name] for name in HEAVY if parser.parse_args().all)]
    return not all([read_with(names) for names in sets])


if __name__ == "__main__":
    sys.exit(main())
