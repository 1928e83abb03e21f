"""Whole jobs in processes of their own: the demo, and runs that are killed on the way."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest

import flawsort
from flawsort.backbones import catalogue
from flawsort.fitting.memory import Need, Sizes
from helpers.plates import (
    KINDS,
    LONG,
    MAIN,
    STALLING_MAIN,
    Answer,
    Cli,
    contents,
    run_code,
    start,
    write_plates,
)

# Every set is too large for memory in a process of its own.
STREAMING = """
from flawsort import AnomalyClusterer
from flawsort.fitting.memory import Sizes
AnomalyClusterer.sizes = Sizes(in_memory=0, batch_images=16)
"""
SMALL_BATCHES = STREAMING.replace("in_memory=0, ", "")
needs_kill = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no SIGKILL")


@pytest.fixture
def job(plates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str | Path]:
    """A cluster command with a cache of its own, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    write_plates(tmp_path / "parts", KINDS * 3)
    return [
        "cluster", "parts", "--normal", plates / "good", "-k", "2", "--preset", "fast",
        "--image-size", "64", "--cache", "cache", "-o", "run",
    ]  # fmt: skip


def kill_in(stage: str, job: list[str | Path], before: str = "") -> None:
    """Start a job and end it, with no chance to tidy up, once a stage is under way.

    before: code that comes first.
    """
    with start(before + STALLING_MAIN, stage, *job) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        assert line == "stalled\n", process.communicate(timeout=LONG)


def results(folder: str) -> dict[str, bytes]:
    """Every file of a run; of the manifest all but the timings."""
    files = contents(Path(folder))
    manifest = json.loads(files.pop("manifest.json"))
    del manifest["timings"]
    return {**files, "manifest.json": json.dumps(manifest).encode()}


def uncached(job: list[str | Path]) -> list[str | Path]:
    at = job.index("--cache")
    return [*job[:at], *job[at + 2 :], "--no-cache"]


@needs_kill
def test_kill_while_embedding(job: list[str | Path], cli: Cli) -> None:
    kill_in("embedding", job)
    assert not Path("run").exists()
    kept = len(list(Path("cache").glob("*/*.bag")))
    assert 0 < kept < 42
    answer = cli(*job)
    assert answer.code == 0
    assert answer.err.splitlines()[0] == f"embedding: {kept} of 42"
    assert not list(Path().glob(".run*"))
    # What was computed before and after the kill is what one go would have given.
    assert cli(*uncached(job), "-o", "again").code == 0
    assert results("again") == results("run")


@needs_kill
@pytest.mark.parametrize("existing", [False, True])
def test_kill_while_scoring(job: list[str | Path], cli: Cli, existing: bool) -> None:
    if existing:
        assert cli(*job, "-k", "3").code == 0
    before = contents(Path("run"))
    kill_in("scoring", [*job, "--overwrite"])
    assert contents(Path("run")) == before
    assert Path("run").exists() == existing
    # What is left says who worked there. Nobody holds it any more, so the next run goes on.
    assert [path.name for path in Path().glob(".run*")] == [".run.flawsort-claim"]
    answer = cli(*job, "--overwrite")
    assert answer.code == 0
    assert answer.err.splitlines()[:2] == ["embedding: 42 of 42", "embedding normals: 10 of 10"]
    assert set(flawsort.open_run("run").table["cluster"]) == {0, 1}
    assert not list(Path().glob(".run*"))


def test_damaged_cache_entries_are_computed_again(job: list[str | Path], cli: Cli) -> None:
    assert cli(*job).code == 0
    for bag in sorted(Path("cache").glob("*/*.bag"))[::2]:
        content = bytearray(bag.read_bytes())
        content[-1] ^= 1
        bag.write_bytes(content)
    answer = cli(*job, "-o", "again")
    counts = re.findall(r"^embedding[a-z ]*: (\d+) of", answer.err, re.MULTILINE)
    assert 0 < int(counts[0]) < 42
    assert results("again") == results("run")


def assert_refused(answer: Answer, message: str) -> None:
    assert answer.code == 2
    assert answer.out == ""
    assert re.fullmatch(r"flawsort: [^\n]*\n", answer.err)
    assert message in answer.err
    assert not Path("run").exists()


def test_memory_that_is_not_enough_is_told_in_one_line(job: list[str | Path], cli: Cli) -> None:
    alone = ["cluster", "parts", "--preset", "fast", "--image-size", "64", "-o", "run", "-q"]
    for size in ("x", "0", "4 bytes"):
        assert_refused(
            cli(*alone, "--max-memory", size),
            f"--max-memory must be a size such as 4GB or 500M. Got '{size}'.",
        )
    assert_refused(
        cli(*alone, "--max-memory", "100M"),
        "--max-memory must be at least 0.4 GB to compare 42 images with each other. Got 100 MB.",
    )
    assert_refused(
        cli(*alone, "--max-memory", "100M", "--peers", "10"),
        "--max-memory must be at least 0.4 GB for 42 images, even in batches. Got 100 MB.",
    )


def test_a_job_within_a_limit_is_streamed(
    job: list[str | Path], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli(*job).code == 0
    small = Sizes(base=0, per_image=0, bank=0, sample_images=42, batch_images=1)
    monkeypatch.setattr(flawsort.AnomalyClusterer, "sizes", small)
    held, streamed = Need(42, 10, ((64, 168),), sizes=small), [*job, "--max-memory", "1800K"]
    assert held.streamed < 1800 * 2**10 < held.in_memory
    answer = cli(*streamed, "-o", "streamed")
    assert answer.code == 0
    assert "sorting: 42 of 42" in answer.err
    assert not list(Path("cache/parts").iterdir())
    first, second = flawsort.open_run("run"), flawsort.open_run("streamed")
    assert second.scores.dtype == np.float16
    assert second.table["cluster"] == first.table["cluster"]
    np.testing.assert_allclose(second.embeddings, first.embeddings, atol=1e-5)
    assert cli(*job, "--max-memory", "900M", "-o", "held").code == 0
    assert flawsort.open_run("held").scores.dtype == np.float32


@needs_kill
def test_kill_while_sorting_batches(
    job: list[str | Path], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a process of its own every set is too large.
    kill_in("sorting", job, STREAMING)
    assert not Path("run").exists()
    assert len(list(Path("cache/parts").glob("*/*.part"))) == 1
    monkeypatch.setattr(flawsort.AnomalyClusterer, "sizes", Sizes(in_memory=0, batch_images=16))
    assert cli(*job).code == 0
    assert not list(Path("cache/parts").iterdir())
    assert cli(*uncached(job), "-o", "again").code == 0
    assert results("again") == results("run")


@needs_kill
@pytest.mark.parametrize("many", [False, True])
def test_kill_while_assigning(
    job: list[str | Path], cli: Cli, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    assert cli(*job).code == 0
    write_plates(Path("new"), ("streak", "dent", "good") * 14)
    assign: list[str | Path] = ["assign", "new", "--run", "run", "--cache", "fresh", "-o"]
    sizes = Sizes(in_memory=0 if many else 2**30, batch_images=16)
    kill_in("sorting", [*assign, "cut.csv"], STREAMING if many else SMALL_BATCHES)
    assert not Path("cut.csv").exists()
    assert len(list(Path("fresh/parts").glob("*/*.part"))) == (1 if many else 0)
    assert len(list(Path("fresh").glob("*/*.bag"))) == 16
    monkeypatch.setattr(flawsort.AnomalyClusterer, "sizes", sizes)
    assert cli(*assign, "cut.csv").code == 0
    assert not list(Path("fresh").glob("parts/*"))
    assert cli("assign", "new", "--run", "run", "--no-cache", "-o", "whole.csv").code == 0
    assert Path("cut.csv").read_bytes() == Path("whole.csv").read_bytes()


def test_the_default_looks_with_two_networks(
    plates: Path, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a folder to groups, a report and new images; held, opened again, and streamed."""
    monkeypatch.chdir(tmp_path)
    command = ["cluster", plates / "parts", "-n", plates / "good", "-k", "2", "--cache", "cache"]
    answer = cli(*command, "-o", "run")
    assert answer.code == 0, answer.err
    assert "; looked at in 2 views." in answer.out
    run = flawsort.open_run("run")
    assert [kind[:4] for kind, group in zip(run.names, run.labels, strict=True) if group] in (
        ["dent"] * 7,
        ["stre"] * 7,
    )
    assert run.manifest["settings"]["preset"] == "default"
    backbones = [run.manifest["backbone"], *run.manifest["beside"]]
    assert [one["name"] for one in backbones] == ["efficientnet-lite2", "dinov2-small"]
    assert [one["input_size"] for one in backbones] == [
        [512, 512],
        catalogue()["dinov2-small"]["input_size"],
    ]
    assert run.grid == (32, 32)
    model = flawsort.AnomalyClusterer.load("run")
    assert (model.method, model.backbone) == ("default", None)
    first, second = model.describer_.looks
    assert (first.shape, second.shape) == ((1024, 168), (256, 256))
    assert Path("run/report.html").stat().st_size > 10_000
    assert cli("assign", plates / "parts", "--run", "run", "--cache", "cache", "-q").code == 0
    model.cache = "cache"
    np.testing.assert_array_equal(model.predict(plates / "parts"), run.labels)
    monkeypatch.setattr(flawsort.AnomalyClusterer, "sizes", Sizes(in_memory=0, batch_images=4))
    assert cli(*command, "-o", "streamed").code == 0
    streamed = flawsort.open_run("streamed")
    assert streamed.scores.dtype == np.float16
    np.testing.assert_array_equal(streamed.labels, run.labels)
    np.testing.assert_allclose(streamed.scores, run.scores, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(streamed.embeddings, run.embeddings, atol=1e-3)


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = run_code(MAIN, "demo", "-o", "demo", "--json")
    assert answer.code == 0, answer.err
    told = json.loads(answer.out)
    assert told["evaluation"].keys() == {"nmi", "ari", "f1", "purity", "true_k"}
    assert told["evaluation"]["nmi"] > 0.9
    assert told["evaluation"]["true_k"] == 6
    assert told["clusters"]["chosen"] == "auto"
    assert told["warnings"] == []
    found = {one["code"]: one["sentence"] for one in told["health"]["findings"]}
    assert found["copies"].endswith("images is an exact copy of another.")
    assert [entry["reason"][:9] for entry in told["set_aside"]] == ["truncated"]
    assert told["report"] == str(Path("demo/run/report.html"))
    page = Path(told["report"]).read_text("utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert sorted(path.name for path in Path("demo").iterdir()) == [
        "cache",
        "good",
        "parts",
        "run",
        "truth.csv",
    ]
