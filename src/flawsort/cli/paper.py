"""The command `flawsort paper`: repeats the experiments of the paper."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flawsort.cli import console
from flawsort.cli.options import Json, Quiet, any_number, whole_number
from flawsort.core.errors import OptionError

if TYPE_CHECKING:
    from flawsort.research.paper.deep_rows import Training
    from flawsort.research.paper.run import Outcome
    from flawsort.research.paper.tables import Options

NETWORK = "The network"
METHOD = "The method"
DEEP = "Deep clustering"


def paper(
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            metavar="FOLDER",
            help="Folder of MVTec AD or of the magnetic tiles; may be repeated.",
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table", "-t", metavar="NAME", help="A name from --list, or all; may be repeated."
        ),
    ] = None,
    show_list: Annotated[
        bool, typer.Option("--list", help="List the tables and figures with their requirements.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SET", help="Use only this set, such as bottle or mtd; may be repeated."
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Folder for results and intermediate files."
        ),
    ] = Path("paper-results"),
    backbone: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Network or ONNX file; wide_resnet50 if omitted; may be repeated.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    backbone_weights: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            metavar="FILE",
            help="File with the network's weights, .safetensors or .pth.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            parser=whole_number("--image-size"),
            metavar="PIXELS",
            help="Side of the backbone's input; a multiple of its step.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    resample: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="How to resize images: bilinear, or bicubic as timm does.",
            rich_help_panel=NETWORK,
        ),
    ] = "bilinear",
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            help="Device to compute on: cpu or cuda; by default a GPU if there is one.",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    temperature: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER",
            help="Spread of the weights, in standard deviations of the scores; 0.3 if omitted. "
            "best tries several and keeps the one that fits the true labels best.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    tau: Annotated[
        float | None,
        typer.Option(
            parser=any_number("--tau"),
            metavar="NUMBER",
            help="Spread of the weights, in units of the scores: the paper's tau.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    seeds: Annotated[
        int,
        typer.Option(
            parser=whole_number("--seeds"),
            metavar="N",
            help="Number of random subsets, for tables that use subsets.",
            rich_help_panel=METHOD,
        ),
    ] = 100,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact/--approximate",
            help="With normals: search exactly, or approximately in inverted lists.",
            rich_help_panel=METHOD,
        ),
    ] = True,
    split_seed: Annotated[
        int,
        typer.Option(
            parser=whole_number("--split-seed"),
            metavar="N",
            help="Seed to draw the normals of the magnetic tiles, if no list names them.",
            rich_help_panel=METHOD,
        ),
    ] = 0,
    leave_out_combined: Annotated[
        bool,
        typer.Option(
            "--leave-out-combined",
            help="Cluster without images that show several kinds at once, which metrics never "
            "count.",
            rich_help_panel=METHOD,
        ),
    ] = False,
    deep: Annotated[
        bool | None,
        typer.Option(
            "--deep/--no-deep",
            help="Also train deep clustering; by default only if there is a GPU.",
            rich_help_panel=DEEP,
        ),
    ] = None,
    deep_weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="ImageNet weights of ResNet-50 to start from; downloaded if omitted.",
            rich_help_panel=DEEP,
        ),
    ] = None,
    deep_seeds: Annotated[
        int,
        typer.Option(
            parser=whole_number("--deep-seeds"),
            metavar="N",
            help="Number of times to train each network.",
            rich_help_panel=DEEP,
        ),
    ] = 3,
    deep_epochs: Annotated[
        int | None,
        typer.Option(
            parser=whole_number("--deep-epochs"),
            metavar="N",
            help="Number of epochs; the default of each network if omitted.",
            rich_help_panel=DEEP,
        ),
    ] = None,
    deep_times: Annotated[
        int,
        typer.Option(
            parser=whole_number("--deep-times"),
            metavar="N",
            help="Train each network this many times as long.",
            rich_help_panel=DEEP,
        ),
    ] = 1,
    deep_scan_rate: Annotated[
        float | None,
        typer.Option(
            parser=any_number("--deep-scan-rate"),
            metavar="NUMBER",
            help="Learning rate of SCAN's first step; 20 if omitted, the authors' is 5.",
            rich_help_panel=DEEP,
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Repeat the experiments of the paper and print its tables. The paper's own numbers stand
    beside them."""
    from flawsort.images.view import View
    from flawsort.research.paper.run import DEFAULT_NETWORK, Setting, listing, run_paper

    if show_list:
        _show_listing(listing(), as_json)
        return
    if not data or not table:
        raise OptionError("--data and --table must be given. See flawsort paper --list.")
    setting = Setting(
        data=tuple(data),
        output=output,
        backbones=tuple(backbone or (DEFAULT_NETWORK,)),
        weights=backbone_weights,
        image_size=image_size,
        view=View(resample=resample),  # type: ignore[arg-type]  # checked by View
        device=device,
        exact=exact,
        split_seed=split_seed,
        only=tuple(only or ()),
        leave_out=leave_out_combined,
        deep=deep,
        training=_training(deep_weights, deep_seeds, deep_epochs, deep_times, deep_scan_rate),
        options=_options(temperature, tau, seeds),
    )
    with console.showing_progress(quiet) as progress:
        done = None if as_json else _show
        notice = console.notice(quiet)
        outcomes = run_paper(table, setting, done=done, progress=progress, notice=notice)
    if as_json:
        console.print_json([outcome.summary() for outcome in outcomes])
        return
    console.say(f"Written to {output}: " + ", ".join(outcome.name for outcome in outcomes) + ".")


def _show(outcome: Outcome) -> None:
    sys.stdout.write(outcome.text + "\n")
    sys.stdout.flush()


def _options(temperature: str | None, tau: float | None, seeds: int) -> Options:
    from flawsort.research.paper.methods import PAPER
    from flawsort.research.paper.tables import Options

    if seeds < 2:
        raise OptionError(f"--seeds must be at least 2. Got {seeds}.")
    if tau is not None and temperature is not None:
        raise OptionError(f"Give --tau or --temperature, not both. Got {tau} and {temperature}.")
    if temperature == "best":
        return Options(best=True, n_seeds=seeds)
    name, given = ("--temperature", temperature) if tau is None else ("--tau", str(tau))
    try:
        value = PAPER.temperature if given is None else float(given)
    except ValueError:
        value = 0.0
    if value is None or not 0 < value < math.inf:
        raise OptionError(f"{name} must be a number greater than 0. Got {given}.")
    method = replace(PAPER, temperature=value)
    if tau is not None:
        method = replace(PAPER, temperature=None, absolute_temperature=value)
    return Options(method=method, n_seeds=seeds)


def _training(
    weights: Path | None, seeds: int, epochs: int | None, times: int, scan_rate: float | None
) -> Training:
    from flawsort.research.paper.deep_rows import Training

    for name, value in (
        ("--deep-seeds", seeds),
        ("--deep-epochs", epochs),
        ("--deep-times", times),
    ):
        if value is not None and value < 1:
            raise OptionError(f"{name} must be at least 1. Got {value}.")
    if scan_rate is not None and not 0 < scan_rate < math.inf:
        raise OptionError(f"--deep-scan-rate must be a number greater than 0. Got {scan_rate}.")
    if weights is not None and not weights.is_file():
        raise OptionError(f"--deep-weights must be a file of weights. Got '{weights}'.")
    return Training(
        n_seeds=seeds, n_epochs=epochs, times=times, scan_rate=scan_rate, weights=weights
    )


def _show_listing(rows: list[tuple[str, str, str, str]], as_json: bool) -> None:
    columns = ("name", "what", "in the paper", "needs")
    if as_json:
        console.print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        console.print_table("", columns, rows)
