"""The bill of materials of the package: what is in the wheel, and what it needs, as CycloneDX JSON.

Run by hand it prints the document. Building a wheel puts it into .dist-info/sboms (PEP 770). The
same sources give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from pathlib import Path
from runpy import run_path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILE_NAME = "flawsort.cdx.json"


def sbom_text(root: Path = ROOT) -> str:
    """The document. root: the folder of pyproject.toml."""
    return json.dumps(_document(root), indent=2, ensure_ascii=False) + "\n"


def _document(root: Path) -> dict[str, Any]:
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    version = run_path(str(root / "src/flawsort/_version.py"))["__version__"]
    own = project["license"]
    itself = {
        "type": "application",
        "bom-ref": "flawsort",
        "name": project["name"],
        "version": version,
        "description": project["description"],
        "licenses": [_licence(own)],
        "purl": f"pkg:pypi/{project['name']}@{version}",
    }
    embedded = _embedded(root, own)
    needed = [_package(one) for one in sorted(project["dependencies"])]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": itself},
        "components": [*embedded, *needed],
        "dependencies": [{"ref": "flawsort", "dependsOn": [one["bom-ref"] for one in needed]}],
    }


def _embedded(root: Path, own_licence: str) -> list[dict[str, Any]]:
    """The ONNX files of the package: networks whose weights others have trained, and graphs of
    arithmetic that are flawsort's own."""
    catalogue = json.loads((root / "src/flawsort/backbones/catalogue.json").read_text("utf-8"))
    networks = {entry["file"]: entry for entry in catalogue.values()}
    found = []
    for path in sorted((root / "src").rglob("*.onnx"), key=Path.as_posix):
        network = networks.get(path.name)
        component = {
            "type": "file" if network is None else "machine-learning-model",
            "bom-ref": path.relative_to(root / "src").as_posix(),
            "name": path.relative_to(root / "src").as_posix(),
            "description": "arithmetic without weights" if network is None else network["origin"],
            "hashes": [
                {"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}
            ],
            "licenses": [_licence(own_licence if network is None else network["licence"])],
        }
        found.append(component)
    return found


def _package(requirement: str) -> dict[str, Any]:
    """A package that pip installs beside the wheel, and the versions that it may have."""
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    return {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}",
        "name": name,
        "purl": f"pkg:pypi/{name}",
        "scope": "required",
        "properties": [
            {"name": "flawsort:versions", "value": requirement.removeprefix(name).strip()}
        ],
    }


def _licence(name: str) -> dict[str, Any]:
    return {"license": {"id": name}}


if __name__ == "__main__":
    sys.stdout.write(sbom_text())
