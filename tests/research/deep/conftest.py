"""Every test here draws the same random weights, whatever ran before it in the same process."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _same_weights() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
