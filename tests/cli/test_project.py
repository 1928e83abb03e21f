"""flawsort.toml: where it is found, what it may hold, and what it changes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer

from flawsort import OptionError
from flawsort.cli import app
from flawsort.cli.project import BY_HAND, FILE, REPLACING, find_project, places, read_project
from helpers.command_line import assert_refused
from helpers.plates import Answer, Cli

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def written(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(text, "utf-8")
    return folder / FILE


class TestPlaces:
    @pytest.mark.parametrize(
        ("paths", "found"),
        [
            ([], ["."]),
            (["set/parts"], ["set/parts", "set", "."]),
            (["set"], ["set", "."]),
            (["."], [".", ".."]),
            (["set/parts/**/*.png"], ["set/parts", "set", "."]),
            (["set/parts/d*.png"], ["set/parts", "set", "."]),
            (["set/parts/one.png"], ["set/parts", "set", "."]),
            (["*.png"], [".", ".."]),
            (["s3://store/parts", "set"], ["set", "."]),
            (["s3://store/parts"], ["."]),
            (["set", "elsewhere"], ["set", "."]),
        ],
        ids=str,
    )
    def test_which_folders(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        paths: Sequence[str],
        found: Sequence[str],
    ) -> None:
        (tmp_path / "set" / "parts").mkdir(parents=True)
        monkeypatch.chdir(tmp_path)
        assert places(paths) == [Path(place) for place in found]

    def test_the_nearest_counts(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "set" / "parts").mkdir(parents=True)
        assert find_project(["set/parts"], COMMANDS) is None
        for folder, device in ((".", "a"), ("set", "b"), ("set/parts", "c")):
            written(tmp_path / folder, f'device = "{device}"')
            project = find_project(["set/parts"], COMMANDS)
            assert project is not None
            assert project.options["cluster"] == {"device": device}
            assert project.path == Path(folder) / FILE

    def test_a_link_to_a_folder_has_its_own_neighbours(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "store" / "parts").mkdir(parents=True)
        (tmp_path / "project").mkdir()
        (tmp_path / "project" / "parts").symlink_to(tmp_path / "store" / "parts")
        monkeypatch.chdir(tmp_path)
        assert Path("project") in places(["project/parts"])
        assert Path("store") not in places(["project/parts"])


class TestRead:
    def test_for_all_commands_and_for_one(self, tmp_path: Path) -> None:
        path = written(tmp_path, 'device = "cpu"\n[cluster]\nseed = 3\ndevice = "cuda"\n')
        project = read_project(path, COMMANDS)
        assert project.options["cluster"] == {"device": "cuda", "seed": "3"}
        assert project.options["assign"] == {"device": "cpu"}
        assert project.options["export"] == {}
        assert project.words["cluster"] == ["--device", "cuda", "--seed", "3"]

    def test_files_are_relative_to_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "lots.csv").write_text("name,lot\n")
        (tmp_path / "net.onnx").write_text("")
        text = """
[cluster]
normal = ["good", "/more/good"]
output = "run"
roi = "1,2,3,4"
backbone = ["net.onnx#stride8", "resnet50"]
[assign]
by = "lots.csv"
keep = "lots.csv"
"""
        project = read_project(written(tmp_path, text), COMMANDS)
        assert project.options["cluster"] == {
            "normal": [str(tmp_path / "good"), "/more/good"],
            "output": str(tmp_path / "run"),
            "roi": "1,2,3,4",
            "backbone": [f"{tmp_path / 'net.onnx'}#stride8", "resnet50"],
        }
        assert project.options["assign"] == {"by": str(tmp_path / "lots.csv"), "keep": "lots.csv"}

    @pytest.mark.parametrize(
        ("text", "exact", "words"),
        [
            ("exact = true", True, ["--exact"]),
            ("exact = false", False, ["--approximate"]),
            ("approximate = true", False, ["--approximate"]),
            ("approximate = false", True, ["--exact"]),
        ],
    )
    def test_flags(self, tmp_path: Path, text: str, exact: bool, words: list[str]) -> None:
        project = read_project(written(tmp_path, f"[cluster]\n{text}\n"), COMMANDS)
        assert project.options["cluster"] == {"exact": exact}
        assert project.words["cluster"] == words

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("device = ", "cannot be read as TOML: Invalid value"),
            ("[sort]\nk = 1", "has [sort]. It must be one of cluster, assign,"),
            ("[cluster]\nclustres = 3", "has clustres in [cluster]. It must be absolute-"),
            ("colour = 'red'", "has colour. It must be absolute-temperature,"),
            ("overwrite = true", "has overwrite. For safety this option must be given in the"),
            ("[review]\nhost = '0.0.0.0'", "has host in [review]. For safety this option"),
            ("[cluster]\nclusters = [3]", "clusters in '{}' must be text or a number. Got [3]."),
            ("[cluster]\nclusters = true", "clusters in '{}' must be text or a number. Got True."),
            ("[cluster]\nnormal = [[1]]", "must be text, a number, or a list of them. Got [[1]]."),
            ("[cluster]\nno-cache = 'yes'", "no-cache in '{}' must be true or false. Got 'yes'."),
            ("device = 1979-05-27", "must be text or a number. Got datetime.date(1979, 5, 27)."),
        ],
    )
    def test_what_is_refused(self, tmp_path: Path, text: str, message: str) -> None:
        path = written(tmp_path, text)
        with pytest.raises(OptionError, match=re.escape(message.format(path))):
            read_project(path, COMMANDS)

    @pytest.mark.parametrize(
        "text",
        [
            '[cluster]\nnormal = ["good", "s3://theirs/good"]',
            '[cluster]\nparts = "s3://theirs/parts"',
            '[assign]\nby = "http://127.0.0.1/lots.csv"',
        ],
    )
    def test_a_url_is_refused(self, tmp_path: Path, text: str) -> None:
        with pytest.raises(OptionError, match="For safety a URL must be given in the command line"):
            read_project(written(tmp_path, text), COMMANDS)

    @pytest.mark.parametrize(
        ("command", "option"),
        [
            ("report", "output"),
            ("report", "pdf"),
            ("report", "heatmaps"),
            ("assign", "output"),
            ("watch", "output"),
        ],
    )
    def test_nothing_elsewhere_is_replaced(self, tmp_path: Path, command: str, option: str) -> None:
        (tmp_path / "set").mkdir()
        (tmp_path / "mine").write_text("mine")
        (tmp_path / "set" / "link").symlink_to(tmp_path / "mine")
        for place in (str(tmp_path / "mine"), "../mine", "link", "a/../../mine"):
            path = written(tmp_path / "set", f'[{command}]\n{option} = "{place}"\n')
            with pytest.raises(
                OptionError, match=f"has {option} = .* must be named in the command"
            ):
                read_project(path, COMMANDS)
        path = written(tmp_path / "set", f'[{command}]\n{option} = "day/mine"\n')
        found = read_project(path, COMMANDS).options[command][option]
        here = str(tmp_path / "set" / "day/mine")
        assert found == ([here] if command == "watch" else here)

    def test_every_file_that_is_replaced_is_known(self) -> None:
        """A new option that names a file to write must be looked at here."""
        written_to = {
            (one.name, one.metavar)
            for command in COMMANDS.values()
            for one in command.params
            if one.metavar == "FILE" or one.name in ("output", "heatmaps")
        }
        read_only = {("backbone_weights", "FILE"), ("lots", "FILE"), ("deep_weights", "FILE")}
        # These replace nothing without --overwrite, or only files of their own in a folder.
        by_themselves = {("output", "FOLDER"), ("output", "PATH")}
        assert written_to - read_only - by_themselves == REPLACING

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        (tmp_path / FILE).write_bytes(b"\xff\xfe")
        with pytest.raises(OptionError, match="cannot be read as TOML: 'utf-8' codec"):
            read_project(tmp_path / FILE, COMMANDS)

    def test_what_people_must_give_by_hand_is_an_option_somewhere(self) -> None:
        options = {
            name.removeprefix("--").replace("-", "_")
            for command in COMMANDS.values()
            for one in command.params
            for name in (one.name, *one.opts)
        }
        assert [name for name in BY_HAND if name not in options] == []


class TestCommands:
    def test_a_command_uses_it(self, here: Path, cli: Cli) -> None:
        written(here, '[cluster]\nclusters = "x"\n')
        told = "Options from 'flawsort.toml': --clusters x\n"
        refused = "flawsort: --clusters must be auto or a whole number. Got 'x'.\n"
        assert cli("cluster", "parts", "-o", "new") == Answer(2, "", told + refused)
        assert cli("cluster", "parts", "-o", "new", "-q") == Answer(2, "", refused)

    def test_the_command_line_replaces_it(self, here: Path, cli: Cli) -> None:
        written(here, '[cluster]\nclusters = "x"\nnormal = ["nowhere"]\n')
        answer = cli("cluster", "parts", "-o", "new", "-k", "y", "-n", "good", "-q")
        assert_refused(answer, "--clusters must be auto or a whole number. Got 'y'.")
        answer = cli("cluster", "parts", "-o", "new", "-k", "2", "-n", "empty", "-q")
        assert_refused(answer, "No images under 'empty/'.")

    @pytest.mark.parametrize("place", [0, -1])
    def test_without_it(self, here: Path, cli: Cli, place: int) -> None:
        written(here, '[cluster]\nclusters = "x"\n')
        words = ["cluster", "nowhere", "-o", "new"]
        words.insert(place % (len(words) + 1), "--no-config")
        assert_refused(cli(*words), "'nowhere' does not exist.")

    def test_it_may_give_what_a_command_needs(self, here: Path, cli: Cli) -> None:
        written(here, '[assign]\nrun = "empty"\nquiet = true\n')
        assert_refused(cli("assign", "parts", "-q"), "'empty' is not a flawsort run")

    def test_help_never_needs_it(self, here: Path, cli: Cli) -> None:
        written(here, "not TOML")
        assert cli("cluster", "--help").code == 0
        assert_refused(cli("cluster", "parts"), "'flawsort.toml' cannot be read as TOML")

    def test_it_runs_no_program(self, here: Path, cli: Cli) -> None:
        program = here / "theirs.sh"
        program.write_text(f"#!/bin/sh\ntouch '{here}/ran'\n")
        program.chmod(0o755)
        written(here / "run", f'[report]\nbrowser = "{program}"\npdf = "report.pdf"\n')
        assert_refused(cli("report", "run"), "has browser in [report]. For safety this option must")
        assert not (here / "ran").exists()

    def test_config_of_a_folder_that_is_not_there(self, here: Path, cli: Cli) -> None:
        answer = cli("config", "nowhere")
        assert (answer.code, answer.out) == (2, "")
        assert "There is no 'nowhere'. Name a folder of images or a run.\n" in answer.err

    def test_config_shows_it(self, here: Path, cli: Cli) -> None:
        answer = cli("config")
        assert (answer.code, answer.err) == (0, "")
        assert "There is no flawsort.toml in '.' or '..'. An example of one:" in answer.out
        example = "\n".join(line for line in answer.out.splitlines() if line.startswith("    "))
        written(here, re.sub("^    ", "", example, flags=re.MULTILINE))
        assert cli("config").out == (
            "Options of the project: flawsort.toml\n\n"
            "flawsort cluster --device cpu --normal good --preset fast\n"
            "flawsort assign --device cpu\n"
            "flawsort watch --device cpu\n"
            "flawsort serve --device cpu\n"
            "flawsort paper --device cpu\n\n"
            "Options in the command line replace these. --no-config leaves them out.\n"
        )
        found = json.loads(cli("config", "run", "--json").out)
        assert found["file"] == "flawsort.toml"
        assert found["searched"] == ["run", "."]
        assert found["options"]["assign"] == ["--device", "cpu"]
