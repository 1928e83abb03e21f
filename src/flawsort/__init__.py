"""flawsort sorts images of products by the kind of flaw they show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flawsort._version import __version__
from flawsort.core.errors import BackboneError, FlawsortError, InputError, OptionError, RunError
from flawsort.core.offline import switch_off

if TYPE_CHECKING:
    from flawsort.core.records import Bags
    from flawsort.embeddings.method import Method
    from flawsort.estimator import AnomalyClusterer, Run, open_run
    from flawsort.images.view import View

switch_off()

__all__ = [
    "AnomalyClusterer",
    "BackboneError",
    "Bags",
    "FlawsortError",
    "InputError",
    "Method",
    "OptionError",
    "Run",
    "RunError",
    "View",
    "__version__",
    "open_run",
]

# Loaded when first asked for: scikit-learn alone takes a second to import.
_HOMES = {
    "AnomalyClusterer": "estimator",
    "Bags": "core.records",
    "Method": "embeddings.method",
    "Run": "estimator",
    "View": "images.view",
    "open_run": "estimator",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'flawsort' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"flawsort.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
