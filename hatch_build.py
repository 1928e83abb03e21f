"""Puts the bill of materials into a wheel while it is built."""

from __future__ import annotations

import tempfile
from pathlib import Path
from runpy import run_path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SbomHook(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling calls `initialize` before it builds, and `finalize` after."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        made = run_path(str(Path(self.root) / "tools" / "sbom.py"))
        self._folder = tempfile.TemporaryDirectory()
        place = Path(self._folder.name) / made["FILE_NAME"]
        place.write_bytes(made["sbom_text"](Path(self.root)).encode())
        build_data["sbom_files"].append(str(place))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._folder.cleanup()
