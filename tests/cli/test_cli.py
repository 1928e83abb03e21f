"""Every command: exit codes, one line for an error, what Ctrl-C leaves, help for people."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import flawsort
from flawsort.cli import KEPT, LEFT
from flawsort.core.text import either
from flawsort.embeddings.pooling import POOLINGS
from helpers.command_line import assert_refused
from helpers.faults import no_space
from helpers.plates import LONG, MAIN, STALLING_MAIN, Answer, Cli, contents, run_code, start

POOLING_NAMES = either(f"'{name}'" for name in POOLINGS)


class TestErrors:
    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("cluster nowhere -o new", "'nowhere' does not exist. Check the path"),
            ("cluster empty -o new", "No images under 'empty/'. Looked for .png, .jpg,"),
            ("cluster one -o new", "images are needed to group them."),
            ("cluster parts -o new -k 15", "must be between 2 and 14 (the number of images). Got"),
            ("cluster parts -o new -k 0", "--clusters must be at least 2. Got 0."),
            ("cluster parts -o new -k x", "--clusters must be auto or a whole number. Got 'x'."),
            (
                "cluster parts -o new --preset x",
                "--preset must be one of default, fast, paper.",
            ),
            ("cluster parts -o new --fit x", "--fit must be one of stretch, pad, crop. Got 'x'."),
            ("cluster parts -o new --roi x", "--roi must be left,top,right,bottom"),
            ("cluster parts -o new --roi 9,9,1,1", "with left < right and top < bottom."),
            ("cluster parts -o new --roi text.onnx", "The mask 'text.onnx' cannot be used"),
            (
                "cluster parts -o new --tile 0",
                "--tile must be auto, or like 2x3 (rows x columns)",
            ),
            ("cluster parts -o new --max-pixels 0", "--max-pixels must be at least 1. Got 0."),
            (
                "cluster parts -o new --workers 2",
                "--workers needs the runner 'ray', but the runner is 'local'",
            ),
            (
                "assign parts --run run --workers 2",
                "--workers needs the runner 'ray', but the runner is 'local'",
            ),
            (
                "assign parts --run run --runner ray --address auto",
                "--parts must be given with the address of a running cluster",
            ),
            ("assign parts --run run --runner x", "--runner must be 'local' or 'ray'. Got 'x'."),
            (
                "cluster parts -o new --cache x --no-cache",
                "--cache cannot be combined with --no-cache. Got 'x'.",
            ),
            (
                "assign parts --run run --cache x --no-cache",
                "--cache cannot be combined with --no-cache. Got 'x'.",
            ),
            ("cluster parts -o new --backbone no.onnx", "Cannot read the backbone file 'no.onnx'"),
            ("cluster parts -o new --backbone text.onnx", "is not an ONNX file that onnxruntime"),
            ("cluster parts -o new --backbone vgg", "--backbone must be one of efficientnet-lite2"),
            ("cluster parts -o new --image-size 65", "--image-size must be a multiple of 32"),
            ("cluster parts -o new --seed x", "--seed must be a whole number. Got 'x'."),
            ("cluster parts -o new --seed=1.5", "--seed must be a whole number. Got '1.5'."),
            ("cluster parts -o new --image-size x", "--image-size must be a whole number. Got"),
            ("cluster parts -o new --max-pixels x", "--max-pixels must be a whole number. Got"),
            ("cluster parts -o new --workers x", "--workers must be a whole number. Got 'x'."),
            ("cluster parts -o new --temperature x", "--temperature must be a number. Got 'x'."),
            (
                "cluster parts -o new --absolute-temperature x",
                "--absolute-temperature must be a number. Got 'x'.",
            ),
            ("cluster parts -o new --nearest-share ,2", "--nearest-share must be a number. Got"),
            ("review run --port x", "--port must be a whole number. Got 'x'."),
            ("paper --list --tau x", "--tau must be a number. Got 'x'."),
            ("paper --list --seeds x", "--seeds must be a whole number. Got 'x'."),
            ("paper --list --split-seed x", "--split-seed must be a whole number. Got 'x'."),
            ("paper --list --image-size x", "--image-size must be a whole number. Got 'x'."),
            ("paper --list --deep-seeds x", "--deep-seeds must be a whole number. Got 'x'."),
            ("paper --list --deep-epochs x", "--deep-epochs must be a whole number. Got 'x'."),
            ("cluster parts -o new --weights x", "--weights must be 'auto', 'uniform', 'masks' or"),
            ("cluster parts -n good -o new --weights uniform", "so normal images have no effect"),
            ("cluster parts -o new --pooling x", f"--pooling must be {POOLING_NAMES}."),
            ("cluster parts -o new --peers x", "--peers must be all or a whole number. Got 'x'."),
            ("cluster parts -o new --peers 1", "--peers must be 'all' or at least 2. Got 1."),
            ("cluster parts -o new --temperature inf", "greater than 0 and finite. Got inf."),
            ("cluster parts -o new --nearest-share 2", "--nearest-share must be greater than 0"),
            ("cluster parts -o new --seed -1", "--seed must be a whole number from 0."),
            ("cluster parts -o new --glob *.tif", "whose name matches '*.tif'"),
            ("cluster parts -o new --normal empty", "No images under 'empty/'."),
            ("cluster parts -o new --truth labels.csv", "None of the 14 images has a label among"),
            ("cluster parts -o run", "--overwrite is needed to replace the run that is in 'run'"),
            ("cluster parts -o file", "The output 'file' is a file."),
            ("cluster parts -o one --overwrite", "holds files that are not a flawsort run."),
            ("cluster parts -o app --overwrite", "holds files that are not a flawsort run."),
            ("cluster parts -o file/new", "Cannot write to"),
            ("cluster parts --hlep", "No such option: --hlep"),
            ("cluster", "Missing argument 'IMAGES...'. Try 'flawsort cluster --help'."),
            ("report", "Missing argument 'RUN'."),
            ("cluster parts -o", "Option '-o' requires an argument."),
            (
                "sort parts",
                "No such command 'sort'. Did you mean 'report', 'export'? Try 'flawsort --help'.",
            ),
            ("assign parts", "Missing option '--run'"),
            ("assign parts --run empty", "'empty' is not a flawsort run: it has no manifest.json"),
            ("assign parts --run nowhere", "No run folder at 'nowhere'."),
            ("assign nowhere --run run", "'nowhere' does not exist."),
            ("assign parts --run run -o x.txt", "The table must be a .csv or .parquet file."),
            ("assign parts --run run -o no/x.csv", "There is no folder"),
            (
                "assign parts --run run --device tpu",
                "--device must be cpu, cuda or cuda:N. Got 'tpu'.",
            ),
            ("assign nowhere --run run --device cpu --arithmetic x", "on cpu. Got 'x'."),
            ("evaluate run --truth labels.csv", "None of the 14 images has a label among the 1 of"),
            ("evaluate run --truth file", "must have a column path or name or file or image"),
            ("evaluate run --truth parts", "'parts' has no labels"),
            ("evaluate run --truth nowhere", "The truth 'nowhere' does not exist."),
            ("evaluate run", "Missing option '--truth'"),
            ("report one", "'one' is not a flawsort run"),
            ("report run -o no/page.html", "Cannot write 'no/page.html': No such file"),
            ("report run --heatmaps file", "Cannot write the heat map 'file/dent00.png.png'"),
            ("demo -o one", "The folder 'one' holds other files."),
            ("demo -o file", "The output 'file' is a file."),
        ],
    )
    def test_one_line_and_exit_code_2(self, here: Path, cli: Cli, line: str, message: str) -> None:
        before = contents(here)
        assert_refused(cli(*line.split()), message)
        after = contents(here)
        after.pop("run/report.html")
        assert {name: before[name] for name in after} == after
        assert not (here / "new").exists()

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("cluster nowhere -o new --debug", "'nowhere' does not exist."),
            ("--debug cluster parts --seed x", "--seed must be a whole number. Got 'x'."),
            ("cluster parts --hlep --debug", "No such option: --hlep"),
        ],
    )
    def test_debug_shows_the_traceback_too(
        self, here: Path, cli: Cli, line: str, message: str
    ) -> None:
        answer = cli(*line.split())
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith("Traceback")
        assert message in answer.err.splitlines()[-1]

    def test_in_a_process_of_its_own(self, here: Path) -> None:
        answer = run_code(MAIN, "cluster", "nowhere", "-o", "new")
        assert_refused(answer, "'nowhere' does not exist.")

    @pytest.mark.parametrize(
        ("error", "code", "message"),
        [
            (no_space("x/y"), 2, "'x/y': No space left on device."),
            (no_space(), 2, "flawsort: No space left on device."),
            (RuntimeError("odd\nthing"), 1, "unexpected RuntimeError: odd thing. This is a bug"),
            (KeyboardInterrupt(), 130, "interrupted. Finished images are in the cache"),
        ],
    )
    def test_errors_that_are_not_ours(
        self,
        here: Path,
        cli: Cli,
        monkeypatch: pytest.MonkeyPatch,
        error: BaseException,
        code: int,
        message: str,
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr("flawsort.cli.cluster.cluster_images", fail)
        answer = cli("cluster", "parts", "-o", "new")
        assert answer.code == code
        assert message in answer.err
        assert answer.err.count("\n") == 1
        if code == 1:
            answer = cli("--debug", "cluster", "parts", "-o", "new")
            assert answer.code == code
            assert answer.err.startswith("Traceback")
            assert answer.err.endswith("This is a bug in flawsort; see the traceback above.\n")

    @pytest.mark.parametrize(
        ("line", "work", "said"),
        [
            ("assign parts -r run", "cli.assign.assign_images", KEPT),
            ("assign parts -r run --no-cache", "cli.assign.assign_images", ""),
            ("cluster parts -o new --no-cache", "cli.cluster.cluster_images", ""),
            ("demo -o new", "cli.sample_images.make_demo_images", KEPT),
            ("paper --list", "research.paper.run.listing", LEFT["paper"]),
            ("review run", "cli.review.serve_runs", LEFT["review"]),
            ("report run", "cli.report.render_again", ""),
            ("export run -f csv -o x.csv", "cli.export.export_folder", ""),
            ("evaluate run --truth truth.csv", "research.evaluate.evaluate_run", ""),
            ("backbones", "cli.backbones.list_backbones", ""),
        ],
    )
    def test_what_an_interrupted_command_leaves(
        self,
        here: Path,
        cli: Cli,
        monkeypatch: pytest.MonkeyPatch,
        line: str,
        work: str,
        said: str,
    ) -> None:
        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(f"flawsort.{work}", interrupted)
        assert cli(*line.split()) == Answer(130, "", f"flawsort: interrupted.{said}\n")

    @pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for another process")
    def test_ctrl_c(self, here: Path) -> None:
        line = ("cluster", "parts", "-o", "new", "--no-cache", "--preset", "fast")
        # A shell may have started the tests with SIGINT ignored, which children inherit.
        listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        with start(listening + STALLING_MAIN, "embedding", *line) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "stalled\n"
                process.send_signal(signal.SIGINT)
                _, err = process.communicate(timeout=LONG)
            finally:
                process.kill()
        assert (process.returncode, err) == (130, "flawsort: interrupted.\n")
        assert not (here / "new").exists()


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version") == Answer(0, f"flawsort {flawsort.__version__}\n", "")
    answer = cli()
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("Usage: flawsort [OPTIONS] COMMAND [ARGS]...\n")
    assert "\n  cluster " in answer.out
    lines = answer.out.partition("\nCommands:\n")[2].splitlines()
    assert len(lines) >= 14
    assert all(line.endswith(".") and not line.endswith("...") for line in lines)
    assert cli("--help") == answer


@pytest.mark.parametrize(
    "command",
    [
        "cluster",
        "assign",
        "review",
        "export",
        "evaluate",
        "report",
        "backbones",
        "paper",
        "demo",
        "config",
        "cache",
        "doctor",
    ],
)
def test_help_is_for_people(cli: Cli, command: str) -> None:
    text = cli(command, "--help").out
    assert not re.search(r"[{}<>]|\b(TEXT|INTEGER|FLOAT|str|int)\b", text)
    usage = {
        "cluster": " IMAGES...",
        "assign": " IMAGES...",
        "paper": "",
        "backbones": "",
        "demo": "",
        "cache": "",
        "doctor": "",
    }
    if command not in ("review", "config"):  # older parsers do not say that these may be left out
        assert text.splitlines()[0] == (
            f"Usage: flawsort {command} [OPTIONS]{usage.get(command, ' RUN')}"
        )


def test_help_of_export_is_filled_evenly(cli: Cli) -> None:
    about = cli("export", "--help").out.partition("Formats:")[0]
    assert "corrections that people gave." in about


def test_nothing_slow_is_imported_before_a_command_is_known() -> None:
    code = "import sys, flawsort.cli; print('numpy' in sys.modules)"
    assert run_code(code) == Answer(0, "False\n", "")


def test_a_reader_that_has_seen_enough(here: Path) -> None:
    code = f"import os, sys; os.close(1); os.dup2(os.pipe()[1], 1); {MAIN}"
    process = start(code, "assign", "parts", "--run", "run", "--json", "-q")
    assert "Traceback" not in process.communicate(timeout=LONG)[1]


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&- <&-"])
def test_closed_streams(here: Path, closed: str) -> None:
    """Nothing can be said, but it is no bug, and no file takes the stream's place."""
    command = f'"$0" -W error -c "$1" report run -o page.html {closed}'
    ended = subprocess.run(["sh", "-c", command, sys.executable, MAIN], capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, b"")
    page = (here / "page.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
