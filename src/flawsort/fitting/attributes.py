"""The results of a fit as attributes of an estimator: labels_, scores_ and the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, overload

from sklearn.exceptions import NotFittedError

from flawsort.core.errors import OptionError
from flawsort.fitting.fitted import Fitted

T = TypeVar("T")


class NotYetFittedError(OptionError, NotFittedError):  # type: ignore[misc]
    """Raised if results are read before `fit`. It is also scikit-learn's NotFittedError."""


class _Found(Generic[T]):
    """A read-only attribute of an estimator, read from the results of its fit."""

    def __init__(self, read: Callable[[Fitted], T]) -> None:
        self._read = read

    @overload
    def __get__(self, model: None, owner: type) -> _Found[T]: ...

    @overload
    def __get__(self, model: FittedAttributes, owner: type) -> T: ...

    def __get__(self, model: FittedAttributes | None, owner: type) -> _Found[T] | T:
        return self if model is None else self._read(model._checked())

    def __set__(self, model: FittedAttributes, value: object) -> None:
        raise AttributeError("Results of a fit are read-only. Set fitted_ to replace all of them.")


class FittedAttributes:
    """Read-only attributes of an estimator, read from its `fitted_`."""

    fitted_: Fitted

    labels_ = _Found(lambda fitted: fitted.labels)
    linkage_ = _Found(lambda fitted: fitted.linkage)
    n_clusters_ = _Found(lambda fitted: fitted.n_clusters)
    advice_ = _Found(lambda fitted: fitted.advice)
    embeddings_ = _Found(lambda fitted: fitted.embeddings)
    scores_ = _Found(lambda fitted: fitted.scores)
    image_scores_ = _Found(lambda fitted: fitted.image_scores)
    weights_ = _Found(lambda fitted: fitted.weights)
    valid_ = _Found(lambda fitted: fitted.valid)
    grid_ = _Found(lambda fitted: fitted.grid)
    regions_ = _Found(lambda fitted: fitted.regions)
    places_ = _Found(lambda fitted: fitted.places)
    gallery_ = _Found(lambda fitted: fitted.gallery)
    kinds_ = _Found(lambda fitted: fitted.kinds)
    heat_ = _Found(lambda fitted: fitted.heat)
    looks_normal_ = _Found(lambda fitted: fitted.looks_normal)
    describer_ = _Found(lambda fitted: fitted.describer)
    n_dims_ = _Found(lambda fitted: fitted.n_dims)
    images_ = _Found(lambda fitted: fitted.images)
    normals_ = _Found(lambda fitted: fitted.normals)
    view_ = _Found(lambda fitted: fitted.view)
    backbone_ = _Found(lambda fitted: fitted.backbone)
    backbones_ = _Found(lambda fitted: fitted.backbones)
    scored_ = _Found(lambda fitted: fitted.scored)
    timings_ = _Found(lambda fitted: dict(fitted.timings))
    warnings_ = _Found(lambda fitted: list(fitted.warnings))

    def _checked(self) -> Fitted:
        if "fitted_" not in vars(self):
            raise NotYetFittedError(
                "This AnomalyClusterer is not fitted yet: call fit or load first."
            )
        return self.fitted_
