"""The command `flawsort evaluate`: its tables, and what stays in the run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import flawsort
from flawsort.cli.evaluate import _show_reviewed
from helpers.plates import Cli

EVALUATION = {
    "nmi", "ari", "f1", "f1_micro", "purity", "classes", "clusters", "confusion", "n_evaluated",
    "excluded", "true_k", "at_true_k", "truth", "several_kinds",
}  # fmt: skip


def test_the_evaluation_stays(here: Path, cli: Cli) -> None:
    answer = cli("evaluate", "run", "--truth", "truth.csv", "--json")
    assert (answer.code, answer.err) == (0, "")
    told = json.loads(answer.out)
    assert told.keys() == EVALUATION
    assert told["nmi"] == told["at_true_k"]["nmi"] == 1
    assert told["confusion"] == [[7, 0], [0, 7]]
    page = (here / "run" / "report.html").read_text("utf-8")
    assert "F1 micro" in page
    (here / "run" / "report.html").unlink()
    answer = cli("report", "run")
    assert (answer.code, answer.out) == (0, "Report: run/report.html\nNext: flawsort review run\n")
    assert (here / "run" / "report.html").read_text("utf-8") == page
    assert json.loads((here / "run" / "evaluation.json").read_text("utf-8")) == told
    assert flawsort.open_run("run").table["name"][0] == "dent00.png"


def test_text(here: Path, cli: Cli) -> None:
    (here / "some.csv").write_text(
        "name,class\ndent00.png,dent\nstreak07.png,streak\ndent01.png,combined\n"
    )
    answer = cli("evaluate", "run", "--truth", "some.csv")
    assert answer.code == 0
    assert re.search(r"if cut into the true number +2 +1\.000", answer.out)
    assert re.search(r"true kind +group 0 +group 1", answer.out)
    assert answer.out.endswith(
        "2 of 14 images evaluated; left out: combined.\nNext: flawsort review run\n"
    )


def test_images_of_several_kinds(here: Path, cli: Cli) -> None:
    (here / "some.csv").write_text(
        "name,class\ndent00.png,dent\nstreak07.png,streak\ndent01.png,dent; streak\n"
    )
    answer = cli("evaluate", "run", "--truth", "some.csv")
    assert answer.code == 0
    assert re.search(
        r"\nImages that show several kinds: 1\. Of their true kinds \d+% were", answer.out
    )
    assert "(50% by the group alone)" in answer.out
    assert answer.out.endswith("2 of 14 images evaluated.\nNext: flawsort review run\n")
    told = json.loads((here / "run" / "evaluation.json").read_text("utf-8"))
    assert told["several_kinds"]["n_images"] == 1
    assert told["classes"] == ["dent", "streak"]


@pytest.mark.parametrize(
    ("n", "said"),
    [
        (
            1,
            "after 1 label given by people. Without a review, the same purity needs 1 group. "
            "1 image is decided.",
        ),
        (
            2,
            "2 labels given by people. Without a review, the same purity needs 2 groups. "
            "2 images are decided.",
        ),
    ],
)
def test_as_reviewed(capsys: pytest.CaptureFixture[str], n: int, said: str) -> None:
    _show_reviewed(
        {"purity": 1, "nmi": 1, "labels_spent": n, "labels_of_the_tree": n, "n_confirmed": n}
    )
    assert said in capsys.readouterr().out
