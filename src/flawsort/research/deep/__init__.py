"""Deep clustering, for comparison: IIC, SCAN and GATCluster. Needs flawsort[torch].

Each is an estimator like AnomalyClusterer, with `fit` and `fit_predict` on a set of images.
"""

from __future__ import annotations

from flawsort.core.errors import BackboneError, first_line

try:
    import timm  # noqa: F401
    import torch  # noqa: F401
except ImportError as error:
    raise BackboneError(
        f"Deep clustering trains networks in torch, which cannot be loaded here "
        f'({first_line(error)}). Install it with pip install "flawsort[torch]".'
    ) from error

from flawsort.research.deep.gatcluster import GATCluster
from flawsort.research.deep.iic import IIC
from flawsort.research.deep.scan import SCAN

__all__ = ["IIC", "SCAN", "GATCluster"]
