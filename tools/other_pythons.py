"""Test flawsort on the other versions of Python that are here, each in an environment of its own.

python tools/other_pythons.py [--all] [--only 3.13] needs pip's index. By default a sample of the
tests runs, which touches files, threads, SQLite, networks, pages and the command line; --all runs
them all. It names the versions that are not here, or where nothing can be installed, and ends with
1 if a test failed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
# From 3.13 on, files and pipes that a test left open are told of in some later test.
LENIENT = (
    "-W", "default::ResourceWarning",
    "-W", "default::pytest.PytestUnraisableExceptionWarning",
)  # fmt: skip
SAMPLE = (
    "tests/cli/test_watch.py",
    "tests/clusters/test_ward.py",
    "tests/core/test_tables.py",
    "tests/daily/test_events.py",
    "tests/images/test_decode.py",
    "tests/labels/test_store.py",
    "tests/runs/test_folder.py",
    "tests/test_estimator.py",
)

# Seconds until the next attempts to install something: the index may not answer for a moment.
PAUSES = (5.0, 30.0)


def find(version: str) -> Path | None:
    """A Python of this version: the one that runs this, one on the path, or one of pyenv's."""
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    named = shutil.which(f"python{version}")
    for place in (Path(sys.executable), *([Path(named)] if named else []), *of_pyenv):
        asked = [place, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        told = subprocess.run(asked, capture_output=True, text=True)
        if told.returncode == 0 and told.stdout.strip() == version:
            return place
    return None


def install(python: Path, *words: str | Path) -> bool:
    """Whether pip of this Python has installed it, at the last attempt."""
    for pause in (*PAUSES, None):
        command = [python, "-m", "pip", "install", "--quiet", *words]
        if subprocess.run(command, cwd=ROOT).returncode == 0:
            return True
        if pause is not None:
            print(f"pip failed; another attempt in {pause:.0f} seconds", flush=True)
            time.sleep(pause)
    return False


def environment(python: Path, folder: str, requirements: Sequence[str]) -> Path | None:
    """The Python of a new environment with these packages; None if they cannot be installed."""
    made = Path(folder) / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if subprocess.run([python, "-m", "venv", folder]).returncode:  # Debian has it apart
        return None
    return made if install(made, *requirements) else None


def try_on(version: str, tests: Sequence[str]) -> bool:
    """Whether the tests pass."""
    python = find(version)
    if python is None:
        print(f"Python {version} is not here: NOT tested", flush=True)
        return True
    with tempfile.TemporaryDirectory() as folder:
        made = environment(python, folder, [".[test]"])
        if made is None:
            print(f"Python {version}: nothing could be installed: NOT tested", flush=True)
            return True
        subprocess.run([made, "--version"], check=True)
        words = [made, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *LENIENT, *tests]
        return subprocess.run(words, cwd=ROOT).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="all tests, not a sample")
    parser.add_argument("--only", choices=VERSIONS, action="append")
    options = parser.parse_args()
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    versions = options.only or [version for version in VERSIONS if version != own]
    passed = {version: try_on(version, () if options.all else SAMPLE) for version in versions}
    failed = [version for version, right in passed.items() if not right]
    if failed:
        print(f"Failed on Python {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
