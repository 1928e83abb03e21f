"""The fused kernels on a GPU, or interpreted where there is none. They need torch and Triton."""

from __future__ import annotations

import json

import pytest

from flawsort.core.devices import Cuda
from helpers import kernel_checks
from helpers.plates import start


@pytest.fixture(scope="module")
def on_gpu() -> bool:
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    return Cuda().count() > 0


@pytest.fixture(scope="module")
def outcomes(on_gpu: bool) -> dict[str, str]:
    """What went wrong in each check, all of which share a process."""
    environment = {} if on_gpu else {"TRITON_INTERPRET": "1"}
    process = start("from helpers.kernel_checks import main; main()", **environment)
    # Interpreted, they take half a minute of a processor that may have other work.
    out, err = process.communicate(timeout=1800)
    assert process.returncode == 0, err
    found: dict[str, str] = json.loads(out)
    return found


@pytest.mark.parametrize("name", [check.__name__ for check in kernel_checks.CHECKS])
def test_kernels(outcomes: dict[str, str], name: str) -> None:
    assert not outcomes[name], outcomes[name]


@pytest.mark.parametrize("name", [check.__name__ for check in kernel_checks.GPU_CHECKS])
def test_kernels_on_a_gpu(outcomes: dict[str, str], on_gpu: bool, name: str) -> None:
    if not on_gpu:
        pytest.skip("there is no GPU")
    assert not outcomes[name], outcomes[name]
