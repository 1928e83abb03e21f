"""What flawsort is made of: the lock file, bounds, the bill of materials, and licences."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from flawsort.backbones.catalogue import catalogue
from helpers.plates import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
NEEDED = [Requirement(line) for line in PROJECT["dependencies"]]
# What the lock file is made for.
LOCKED = [*NEEDED, *(Requirement(line) for name in ("test", "dev") for line in EXTRAS[name])]


@pytest.fixture(scope="module", autouse=True)
def _tools_find_each_other() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        yield


@cache
def pins() -> dict[str, list[str]]:
    """The blocks of the lock file by the name of their package: one for each version of it."""
    text = (ROOT / "requirements-dev.lock").read_text("utf-8")
    blocks = [block for block in re.split(r"\n(?=\S)", text) if not block.startswith("#")]
    found: dict[str, list[str]] = {}
    for block in blocks:
        found.setdefault(canonicalize_name(block.partition("==")[0]), []).append(block)
    return found


def versions(name: str) -> list[Version]:
    blocks = pins()[canonicalize_name(name)]
    return [Version(re.split(r"[ \\;]", block.partition("==")[2])[0]) for block in blocks]


class TestLockFile:
    @pytest.mark.parametrize("requirement", LOCKED, ids=lambda one: one.name)
    def test_it_satisfies_the_project(self, requirement: Requirement) -> None:
        assert all(version in requirement.specifier for version in versions(requirement.name))

    def test_every_package_has_its_hashes(self) -> None:
        for name, blocks in pins().items():
            for block in blocks:
                assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), name

    def test_it_names_no_place_to_load_from(self) -> None:
        assert "://" not in (ROOT / "requirements-dev.lock").read_text("utf-8")


class TestBounds:
    @pytest.mark.parametrize("requirement", NEEDED, ids=lambda one: one.name)
    def test_each_package_has_one_lowest_version_and_no_highest(
        self, requirement: Requirement
    ) -> None:
        """A bound above needs a break that is known."""
        assert [clause.operator for clause in requirement.specifier] == [">="]

    def test_the_lowest_versions_are_those_of_the_project(self) -> None:
        lowest = run_path(str(ROOT / "tools/lowest_versions.py"))["lowest"]
        given = ["numpy>=1.26", "ray[data]>=2.40", "x>=1; python_version < '3'"]
        assert lowest(given) == ["numpy==1.26", "ray[data]==2.40"]
        assert len(lowest([*PROJECT["dependencies"], *EXTRAS["test"]])) == len(NEEDED) + len(
            EXTRAS["test"]
        )

    def test_the_tests_of_the_lowest_versions_exist(self) -> None:
        tests = run_path(str(ROOT / "tools/lowest_versions.py"))["TESTS"]
        assert [name for name in tests if not (ROOT / name).exists()] == []


class TestOtherEnvironments:
    """tools/other_pythons.py and tools/export_readers.py."""

    def test_pythons_are_found_by_what_they_say(self) -> None:
        """pyenv has a file for each version, also for those that are not chosen."""
        tool = run_path(str(ROOT / "tools/other_pythons.py"))
        own = f"{sys.version_info.major}.{sys.version_info.minor}"
        assert tool["find"](own) == Path(sys.executable)
        assert tool["find"]("3.99") is None
        assert [name for name in tool["SAMPLE"] if not (ROOT / name).exists()] == []

    def test_the_versions_that_are_not_here_are_named(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run_path(str(ROOT / "tools/other_pythons.py"))["try_on"]("3.99", ())
        assert capsys.readouterr().out == "Python 3.99 is not here: NOT tested\n"

    @pytest.mark.parametrize(("codes", "done"), [([1, 0], True), ([1, 1, 1], False)])
    def test_an_index_that_does_not_answer_is_asked_again(
        self, monkeypatch: pytest.MonkeyPatch, codes: list[int], done: bool
    ) -> None:
        install = run_path(str(ROOT / "tools/other_pythons.py"))["install"]
        left, asked = list(codes), []

        def run(command: list[object], **_: object) -> SimpleNamespace:
            asked.append(command[1:])
            return SimpleNamespace(returncode=left.pop(0))

        monkeypatch.setitem(install.__globals__, "subprocess", SimpleNamespace(run=run))
        monkeypatch.setitem(install.__globals__, "PAUSES", (0.0, 0.0))
        assert install(Path("python"), "a", "b") is done
        assert asked == [["-m", "pip", "install", "--quiet", "a", "b"]] * len(codes)

    def test_all_readers_are_tried(self) -> None:
        tool = run_path(str(ROOT / "tools/export_readers.py"))
        assert sorted(tool["readers"]().values()) == sorted(EXTRAS["readers"])
        assert {*tool["HEAVY"]} < {*tool["readers"]()}
        assert (ROOT / tool["TESTS"]).exists()

    def test_what_was_not_read_is_said(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        read_with = run_path(str(ROOT / "tools/export_readers.py"))["read_with"]
        monkeypatch.setitem(read_with.__globals__, "environment", lambda *given: None)
        assert read_with(["datumaro"])
        assert "datumaro could not be installed: exports were NOT read" in capsys.readouterr().out


def bill() -> dict[str, Any]:
    return dict(json.loads(run_path(str(ROOT / "tools/sbom.py"))["sbom_text"]()))


class TestBillOfMaterials:
    def test_the_same_bytes_each_time(self) -> None:
        made = run_path(str(ROOT / "tools/sbom.py"))["sbom_text"]
        text = made()
        assert text == made()
        assert str(ROOT) not in text
        assert not re.search(r"timestamp|serialNumber", text)

    def test_it_is_what_the_format_demands(self) -> None:
        made = bill()
        assert (made["bomFormat"], made["specVersion"], made["version"]) == ("CycloneDX", "1.6", 1)
        references = [one["bom-ref"] for one in made["components"]]
        assert len(set(references)) == len(references)
        (needs,) = made["dependencies"]
        assert needs["ref"] == made["metadata"]["component"]["bom-ref"]
        assert set(needs["dependsOn"]) <= set(references)

    def test_all_networks_with_their_hashes_and_licences(self) -> None:
        package = ROOT / "src"
        listed = {one["name"]: one for one in bill()["components"] if "hashes" in one}
        there = {path.relative_to(package).as_posix(): path for path in package.rglob("*.onnx")}
        assert listed.keys() == there.keys()
        for name, path in there.items():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            assert listed[name]["hashes"] == [{"alg": "SHA-256", "content": digest}]
        for entry in catalogue().values():
            component = listed[f"flawsort/backbones/{entry['file']}"]
            assert component["type"] == "machine-learning-model"
            assert component["licenses"] == [{"license": {"id": entry["licence"]}}]

    def test_all_dependencies(self) -> None:
        named = {one["name"] for one in bill()["components"] if one["type"] == "library"}
        assert named == {one.name for one in NEEDED}


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    """The names of tools/check_wheel.py."""
    return run_path(str(ROOT / "tools/check_wheel.py"))


class TestWheel:
    @pytest.mark.parametrize("more", [0, 1])
    def test_networks_may_take_25_megabytes_together(
        self, tool: dict[str, Any], tmp_path: Path, more: int
    ) -> None:
        path = tmp_path / "x.whl"
        with ZipFile(path, "w", ZIP_DEFLATED) as wheel:
            wheel.writestr("x/one.onnx", bytes(20_000_000))
            wheel.writestr("x/other.onnx", bytes(5_000_000 + more))
            wheel.writestr("x/text.py", bytes(1_000_000))
        if more:
            with pytest.raises(tool["Wrong"], match=r"the networks take 25\.0 MB, and may take 25"):
                tool["check_networks"](path)
        else:
            tool["check_networks"](path)

    def test_the_networks_of_today_fit(self, tool: dict[str, Any]) -> None:
        sizes = [path.stat().st_size for path in (ROOT / "src").rglob("*.onnx")]
        assert 0 < sum(sizes) <= tool["MOST_OF_NETWORKS"] == 25_000_000

    def test_a_megabyte_is_a_million_bytes(self, tool: dict[str, Any]) -> None:
        assert tool["megabytes"](21_936_725) == "21.9 MB"


class TestLicences:
    def test_every_embedded_file_of_others_is_named(self) -> None:
        notice = (ROOT / "src/flawsort/backbones/NOTICE").read_text("utf-8")
        for path in (ROOT / "src").rglob("*.onnx"):
            assert path.name in notice

    def test_no_other_kind_of_file_is_carried(self) -> None:
        """Fonts, pictures and scripts of others would bring licences of their own."""
        allowed = run_path(str(ROOT / "tools/check_wheel.py"))["SUFFIXES"]
        files = [path for path in (ROOT / "src").rglob("*") if path.is_file()]
        assert {path.suffix for path in files} - {".pyc"} <= allowed
        longest = [
            path
            for path in files
            if path.suffix in (".js", ".css")
            and max(map(len, path.read_text("utf-8").splitlines()), default=0) > 1000
        ]
        assert longest == []  # as scripts of others are, when they are made small

    def test_the_security_policy_points_to_the_promises(self) -> None:
        text = (ROOT / "SECURITY.md").read_text("utf-8")
        assert "docs/reference/promises.md" in text
        for place in re.findall(r"\]\(([^)#]+)", text):
            assert Path(ROOT / place).exists(), place
