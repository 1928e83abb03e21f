"""What the options of a method may be, said once for each and checked before it is trained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

from flawsort.core.errors import OptionError


@dataclass(frozen=True)
class Limit:
    """A number from least to most, a whole one unless said; None too where it is optional."""

    least: float
    most: float = math.inf
    whole: bool = True
    optional: bool = False

    def check(self, name: str, value: object) -> None:
        """Raise OptionError where the value is not such a number."""
        if value is None and self.optional:
            return
        kind = Integral if self.whole else Real
        right = isinstance(value, kind) and not isinstance(value, bool)
        if right and self.least <= float(value) <= self.most:  # type: ignore[arg-type]
            return
        what = "an integer" if self.whole else "a number"
        reach = f"of at least {self.least:g}"
        if self.most < math.inf:
            reach = f"from {self.least:g} to {self.most:.10g}"
        other = ", or None" if self.optional else ""
        raise OptionError(f"{name} must be {what} {reach}{other}. Got {value!r}.")


def rate() -> Limit:
    """Of an optimiser."""
    return Limit(1e-9, 1e3, whole=False)


# What every method has.
COMMON = {
    "n_clusters": Limit(2),
    "n_epochs": Limit(1),
    "batch_size": Limit(2),
    "random_state": Limit(0, 2**32 - 1),
}
