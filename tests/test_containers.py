"""The files for containers: what they start is there, nobody is root, and no torch comes along."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from fnmatch import fnmatch
from typing import Any

import pytest
import typer

from flawsort.cli import app
from helpers.plates import ROOT

yaml = pytest.importorskip("yaml")
LIGHT = ("torch", "timm", "ray", "[")


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, in order."""
    text = (ROOT / "Dockerfile").read_text("utf-8")
    joined = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    lines = [line.strip() for line in joined.splitlines() if line.strip()]
    found = [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]
    assert all(re.fullmatch(r"[A-Z]+", name) for name, _ in found)
    return found


def last(name: str) -> str:
    return [value for one, value in instructions() if one == name][-1]


def services() -> dict[str, Any]:
    found = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    assert set(found) <= {"services", "x-flawsort"}
    return dict(found["services"])


def parsed(words: list[str]) -> dict[str, Any]:
    """The options of a command as the command line reads them."""
    command = typer.main.get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    context = command.make_context(words[0], words[1:], resilient_parsing=False)
    return dict(context.params)


class TestDockerfile:
    def test_two_stages_and_the_light_install(self) -> None:
        names = [name for name, _ in instructions()]
        assert names.count("FROM") == 2
        installs = [value for name, value in instructions() if name == "RUN" and "pip" in value]
        (install,) = installs
        assert install.endswith("pip install --no-cache-dir .")
        assert not any(word in install for word in LIGHT)

    def test_the_python_is_one_that_is_supported(self) -> None:
        versions = {value.split()[0] for name, value in instructions() if name == "FROM"}
        (version,) = versions
        assert re.fullmatch(r"python:3\.1[1-9]-slim", version)

    def test_nobody_is_root(self) -> None:
        names = [name for name, _ in instructions()]
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", last("USER"))
        after = names[len(names) - names[::-1].index("USER") :]
        assert "RUN" not in after
        assert "COPY" not in after

    def test_what_it_starts(self) -> None:
        assert json.loads(last("ENTRYPOINT")) == ["flawsort"]
        options = parsed(json.loads(last("CMD")))
        assert options["host"] == "0.0.0.0"
        assert options["token"] is None  # it comes in the environment
        assert str(options["port"]) in last("EXPOSE").split()

    def test_its_health_is_asked_where_it_listens(self) -> None:
        check = last("HEALTHCHECK")
        code = json.loads(check[check.index("CMD") + 3 :])
        assert code[:2] == ["python", "-c"]
        compile(code[2], "health", "exec")
        assert f"http://127.0.0.1:{parsed(json.loads(last('CMD')))['port']}/health" in code[2]

    def test_what_it_copies_is_not_ignored(self) -> None:
        lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        rules = [line for line in lines if line and not line.startswith("#")]
        copied = [
            source.removeprefix("./")
            for name, value in instructions()
            if name == "COPY" and "--from" not in value
            for source in value.split()[:-1]
        ]
        assert {"pyproject.toml", "src"} <= set(copied)
        for path in [*copied, ".git", "tests", "docs", ".venv", "data", ".env"]:
            ignored = False
            for rule in rules:
                if fnmatch(path, rule.removeprefix("!")):
                    ignored = not rule.startswith("!")
            assert ignored == (path not in copied), path
        assert all((ROOT / path).exists() for path in copied)

    @pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
    def test_the_linter_finds_nothing(self) -> None:
        done = subprocess.run(
            ["hadolint", str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "")


class TestCompose:
    def test_the_three_services_share_the_run(self) -> None:
        found = services()
        assert set(found) == {"watch", "serve", "review"}
        assert len({json.dumps(one["volumes"]) for one in found.values()}) == 1
        (volume,) = found["serve"]["volumes"]
        assert volume.endswith(":/data")
        for name, one in found.items():
            assert one["command"][0] == name
            assert "/data/run" in one["command"]
            parsed(one["command"])

    @pytest.mark.parametrize("name", ["watch", "serve", "review"])
    def test_nothing_runs_with_more_rights_than_it_needs(self, name: str) -> None:
        one = services()[name]
        assert one["read_only"] is True
        assert one["cap_drop"] == ["ALL"]
        assert one["security_opt"] == ["no-new-privileges:true"]
        assert "privileged" not in one
        assert one["user"] == "${FLAWSORT_UID:-1000}:${FLAWSORT_GID:-1000}"
        # Otherwise the first process of a container would not hear that it is to end.
        assert one["init"] is True

    @pytest.mark.parametrize("name", ["serve", "review"])
    def test_who_gets_in(self, name: str) -> None:
        """Other machines only after somebody has chosen so, and with a token."""
        one = services()[name]
        options = parsed(one["command"])
        assert options["host"] == "0.0.0.0"
        assert not options["no_token"]
        assert one["environment"]["FLAWSORT_TOKEN"].startswith("${FLAWSORT_TOKEN:?")
        port = options["port"]
        assert one["ports"] == [f"127.0.0.1:{port}:{port}"]
        if name == "review":
            assert f"('127.0.0.1', {port})" in one["healthcheck"]["test"][-1]
            compile(one["healthcheck"]["test"][-1], "health", "exec")

    def test_what_is_being_sorted_may_be_answered(self) -> None:
        from flawsort.daily.server import PATIENCE

        assert int(services()["serve"]["stop_grace_period"].removesuffix("s")) > PATIENCE

    def test_watch_has_no_port_to_ask(self) -> None:
        assert services()["watch"]["healthcheck"] == {"disable": True}
        assert "ports" not in services()["watch"]
