"""The command `flawsort demo`: it continues, and keeps out of other folders."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from flawsort.cli import sample_images as demo
from helpers.command_line import assert_refused
from helpers.plates import Answer, Cli, contents


class TestDemo:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Seven images, which nobody groups."""
        monkeypatch.chdir(tmp_path)
        few = partial(demo.make_demo_images, kinds=dict.fromkeys(demo.KINDS, 1), n_good=1)
        monkeypatch.setattr(demo, "make_demo_images", few)
        monkeypatch.setattr("flawsort.cli.demo.run_cluster", lambda *_, **__: None)

    def test_goes_on_when_it_was_interrupted(
        self, cli: Cli, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert cli("demo", "-o", "whole").code == 0
        real, made = demo._picture, []

        def interrupted(*given: Any) -> Image.Image:
            made.append(given)
            if len(made) == 3:
                raise KeyboardInterrupt
            return real(*given)

        with monkeypatch.context() as patch:
            patch.setattr("flawsort.cli.sample_images._picture", interrupted)
            answer = cli("demo", "-o", "new")
        assert (answer.code, len(list(Path("new/parts").iterdir()))) == (130, 2)
        answer = cli("demo", "-o", "new")
        assert (answer.code, answer.out) == (0, "")
        assert answer.err.splitlines()[0] == "making images: 0 of 7"
        assert answer.err.splitlines()[-1].startswith("making images: 7 of 7")
        assert contents(Path("new")) == contents(Path("whole"))
        assert cli("demo", "-o", "new", "-q") == Answer(0, "", "")  # nor is a finished one refused

    @pytest.mark.parametrize("truth", [None, "path,label\ndent00.png,dent\n", ""])
    def test_keeps_out_of_other_folders(self, cli: Cli, truth: str | None) -> None:
        Path("mine/parts").mkdir(parents=True)
        if truth is not None:
            Path("mine/truth.csv").write_text(truth)
        before = contents(Path("mine"))
        assert_refused(cli("demo", "-o", "mine"), "The folder 'mine' holds other files.")
        assert contents(Path("mine")) == before

    @pytest.mark.parametrize("what", ["edits.sqlite", "assigned", "watch.sqlite"])
    def test_keeps_what_people_put_in(self, cli: Cli, what: str) -> None:
        assert cli("demo", "-o", "new", "-q").code == 0
        (Path("new/run") / what).mkdir(parents=True)
        answer = cli("demo", "-o", "new")
        assert_refused(
            answer, "holds edits or new images, which would be lost. Name another folder with -o."
        )
        assert "--labels-from" not in answer.err
