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
            "address needs the runner 'ray', but the runner is 'local'. Change the runner, or "
            "leave this out. Got auto.",
        ),
        (
            "local",
            SAMPLED,
            {"n_workers": 2},
            "n_workers needs the runner 'ray', but the runner is 'local'",
        ),
        (
            "local",
            SAMPLED,
            {"parts": Path("x")},
            "parts needs the runner 'ray', but the runner is 'local'",
        ),
        (
            "ray",
            Method(weights="uniform", pooling="average"),
            {},
            "runner must be 'local' for uniform",
        ),
        ("ray", PRESETS["paper"], {}, "n_peers must be a number, such as 128, for the"),
        ("ray", Method(n_peers="all"), {}, "n_peers must be a number, such as 128, for the"),
        (
            "ray",
            SAMPLED,
            {"max_memory": "4GB"},
            "max_memory has no effect with the runner 'ray', which always streams and does not "
            "limit the memory of its workers. Leave it out. Got '4GB'.",
        ),
        (
            "ray",
            SAMPLED,
            {"address": "auto"},
            "parts must be given with the address of a running cluster: a folder that all its "
            "machines share, or a URL such as s3://bucket/parts. Got only the address 'auto'.",
        ),
    ],
)
def test_what_cannot(runner: str, method: Method, options: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=f"^{re.escape(told)}"):
        check(runner, method, normals=False, **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"address": "auto"}, "address needs the runner 'ray', but the runner is 'local'"),
        ({"n_workers": 2}, "n_workers needs the runner 'ray', but the runner is 'local'"),
        ({"parts": "work"}, "parts needs the runner 'ray', but the runner is 'local'"),
        ({"runner": "ray", "method": "paper"}, "n_peers must be a number"),
        ({"runner": "ray", "max_memory": "4GB"}, "max_memory has no effect"),
        ({"runner": "ray", "address": "auto"}, "parts must be given with"),
    ],
)
def test_a_fit_says_so_before_it_looks_for_images(options: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        AnomalyClusterer(**options).fit("there is no such folder")


def test_normals_need_no_peers() -> None:
    """With them the preset "paper" is no reason to stop: here the missing folder is."""
    with pytest.raises(Exception, match="does not exist"):
        AnomalyClusterer(runner="ray", method="paper").fit("no such folder", normal="nor this")
