"""What was asked for and cannot be done is said before the work, by its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from flawsort import AnomalyClusterer, Method, OptionError
from flawsort.asked import check_engine
from flawsort.presets import PRESETS

SAMPLED = Method(n_peers=6)


@pytest.mark.parametrize(
    ("engine", "method", "options"),
    [
        ("local", PRESETS["paper"], {"max_memory": "4GB"}),
        ("local", Method(weights="uniform", pooling="average"), {"max_memory": "4GB"}),
        ("ray", PRESETS["default"], {}),
        ("ray", SAMPLED, {"n_workers": 2, "parts": "x"}),
        ("ray", SAMPLED, {"address": "auto", "parts": Path("x")}),
        ("ray", PRESETS["paper"], {"normals": True}),
    ],
)
def test_what_can_be_done(engine: str, method: Method, options: dict[str, Any]) -> None:
    check_engine(engine, method, **{"normals": False, **options})


@pytest.mark.parametrize(
    ("engine", "method", "options", "told"),
    [
        ("spark", SAMPLED, {}, "engine must be 'local' or 'ray'. Got 'spark'."),
        (
            "local",
            SAMPLED,
            {"address": "auto"},
            "address is of a Ray cluster, and engine 'local' has none: use engine 'ray', or leave "
            "it out. Got auto.",
        ),
        ("local", SAMPLED, {"n_workers": 2}, "n_workers is of a Ray cluster"),
        ("local", SAMPLED, {"parts": Path("x")}, "parts is of a Ray cluster"),
        ("ray", Method(weights="uniform", pooling="average"), {}, "weights='uniform' compares"),
        ("ray", PRESETS["paper"], {}, "engine 'ray' compares with a sample of peers"),
        ("ray", Method(n_peers="all"), {}, "engine 'ray' compares with a sample of peers"),
        (
            "ray",
            SAMPLED,
            {"max_memory": "4GB"},
            "engine 'ray' streams a set of any size, and workers take memory of their own, so "
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
def test_what_cannot(engine: str, method: Method, options: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=f"^{re.escape(told)}"):
        check_engine(engine, method, normals=False, **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"address": "auto"}, "address is of a Ray cluster"),
        ({"n_workers": 2}, "n_workers is of a Ray cluster"),
        ({"parts": "work"}, "parts is of a Ray cluster"),
        ({"engine": "ray", "method": "paper"}, "n_peers='all'"),
        ({"engine": "ray", "max_memory": "4GB"}, "max_memory cannot be kept to"),
        ({"engine": "ray", "address": "auto"}, "need parts"),
    ],
)
def test_a_fit_says_so_before_it_looks_for_images(options: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        AnomalyClusterer(**options).fit("there is no such folder")


def test_normals_need_no_peers() -> None:
    """With them the preset "paper" is no reason to stop: here the missing folder is."""
    with pytest.raises(Exception, match="does not exist"):
        AnomalyClusterer(engine="ray", method="paper").fit("no such folder", normal="nor this")
