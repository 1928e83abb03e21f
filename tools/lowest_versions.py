"""Test flawsort with the lowest versions that pyproject.toml names, in an environment of its own.

python tools/lowest_versions.py needs pip's index, and Python 3.11: newer ones have no wheels of the
lowest versions. It runs the tests that use each dependency, and ends as pytest does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

from packaging.requirements import Requirement

from other_pythons import ROOT, install

# A few minutes of tests that use what the dependencies offer: arrays, trees, networks, pictures,
# tables, pages, the server and the command line.
TESTS = (
    "tests/backbones/test_onnx.py",
    "tests/cli/test_cli.py",
    "tests/clusters/test_clusters.py",
    "tests/clusters/test_ward.py",
    "tests/core/test_tables.py",
    "tests/embeddings/test_pooling.py",
    "tests/images/test_decode.py",
    "tests/labels/test_session.py",
    "tests/labels/test_store.py",
    "tests/outputs/exports/test_exports.py",
    "tests/review/test_app.py",
    "tests/runs/test_folder.py",
    "tests/runs/test_tables.py",
    "tests/test_estimator.py",
)


def lowest(requirements: list[str]) -> list[str]:
    """Each requirement with the lowest version that it allows."""
    found = []
    for line in requirements:
        one = Requirement(line)
        if one.marker is not None and not one.marker.evaluate():
            continue
        (least,) = [clause.version for clause in one.specifier if clause.operator == ">="]
        extras = f"[{','.join(sorted(one.extras))}]" if one.extras else ""
        found.append(f"{one.name}{extras}=={least}")
    return found


def main() -> int:
    if sys.version_info[:2] != (3, 11):
        print(f"not run: Python 3.11 has wheels of the lowest versions, {sys.version[:6]} has not")
        return 0
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = lowest([*project["dependencies"], *project["optional-dependencies"]["test"]])
    print("Lowest versions:", ", ".join(wanted), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / ("Scripts" if sys.platform == "win32" else "bin") / "python"
        if not (install(python, *wanted) and install(python, "--no-deps", ROOT)):
            print("lowest_versions: they cannot be installed")
            return 1
        subprocess.run([python, "-m", "pip", "check"], check=True)
        # The BLAS of the lowest NumPy rounds otherwise with one thread than with two, and a limit
        # of its threads holds for all that a process does at the time.
        alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        return subprocess.run(
            [python, "-m", "pytest", "--quiet", *TESTS], cwd=ROOT, env=alone
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
