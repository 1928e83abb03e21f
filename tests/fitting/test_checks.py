"""What was asked for and cannot be done is said before the work, by its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from flawsort import AnomalyClusterer, Method, OptionError
from flawsort.embeddings.method import PRESETS
from flawsort.fitting.checks import check_fit_on_ray, check_runner

SAMPLED = Method(n_peers=6)


def check(
    runner: str, method: Method, *, normals: bool, max_memory: str | None = None, **options: Any
) -> None:
    """As a fit checks them."""
    check_runner(runner, **options)
    if runner == "ray":
        check_fit_on_ray(method, normals=normals, max_memory=max_memory)


@pytest.mark.parametrize(
    ("runner", "method", "options"),
    [
        ("local", PRESETS["paper"], {"max_memory": "4GB"}),
        ("local", Method(weights="uniform", pooling="average"), {"max_memory": "4GB"}),
        ("ray", PRESETS["default"], {}),
        ("ray", SAMPLED, {"n_workers": 2, "parts": "x"}),
        ("ray", SAMPLED, {"address": "auto", "parts": Path("x")}),
        ("ray", PRESETS["paper"], {"normals": True}),
    ],
)
def test_what_can_be_done(runner: str, method: Method, options: dict[str, Any]) -> None:
    check(runner, method, **{"normals": False, **options})


@pytest.mark.parametrize(
    ("runner", "method", "options", "told"),
    [
        ("spark", SAMPLED, {}, "runner must be 'local' or 'ray'. Got 'spark'."),
        (
            "local",
            SAMPLED,
            {"address": "auto"},
            "address is of a Ray cluster, and runner 'local' has none: use runner 'ray', or leave "
            "it out. Got auto.",
        ),
        ("local", SAMPLED, {"n_workers": 2}, "n_workers is of a Ray cluster"),
        ("local", SAMPLED, {"parts": Path("x")}, "parts is of a Ray cluster"),
        ("ray", Method(weights="uniform", pooling="average"), {}, "weights='uniform' compares"),
        ("ray", PRESETS["paper"], {}, "runner 'ray' compares with a sample of peers"),
        ("ray", Method(n_peers="all"), {}, "runner 'ray' compares with a sample of peers"),
        (
            "ray",
            SAMPLED,
            {"max_memory": "4GB"},
            "runner 'ray' streams a set of any size, and workers take memory of their own, so "
            "max_memory cannot be kept to: leave it out. Got '4GB'.",
        ),
        (
            "ray",
            SAMPLED,
            {"address": "auto"},
            "The workers of a running cluster need parts, a folder that all its machines see, or a "
            "URL such as s3://bucket/parts. Got address 'auto' and no parts.",
        ),
    ],
)
def test_what_cannot(runner: str, method: Method, options: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=f"^{re.escape(told)}"):
        check(runner, method, normals=False, **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"address": "auto"}, "address is of a Ray cluster"),
        ({"n_workers": 2}, "n_workers is of a Ray cluster"),
        ({"parts": "work"}, "parts is of a Ray cluster"),
        ({"runner": "ray", "method": "paper"}, "n_peers='all'"),
        ({"runner": "ray", "max_memory": "4GB"}, "max_memory cannot be kept to"),
        ({"runner": "ray", "address": "auto"}, "need parts"),
    ],
)
def test_a_fit_says_so_before_it_looks_for_images(options: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        AnomalyClusterer(**options).fit("there is no such folder")


def test_normals_need_no_peers() -> None:
    """With them the preset "paper" is no reason to stop: here the missing folder is."""
    with pytest.raises(Exception, match="does not exist"):
        AnomalyClusterer(runner="ray", method="paper").fit("no such folder", normal="nor this")
