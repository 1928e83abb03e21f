"""What the health check found: records that are saved with a run and read by every page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """Something that a person should know before trusting the groups.

    code: a stable name of the kind of finding. sentence: what was found. advice: what to do.
    value: the number that it rests on. group: the cluster that it is about, or None.
    images: the names of the images that it is about; empty if it is about the whole set.
    """

    code: str
    sentence: str
    advice: str
    value: float
    group: int | None = None
    images: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.sentence} {self.advice}"


@dataclass(frozen=True)
class Health:
    """The findings, the most serious first, and what was not looked at, in sentences."""

    findings: tuple[Finding, ...] = ()
    not_looked_at: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [*map(str, self.findings), *self.not_looked_at]
        return "\n".join(lines) or "Nothing was found that speaks against the groups."

    def to_dict(self) -> dict[str, Any]:
        """As values for JSON."""
        return {
            "findings": [{**asdict(one), "images": list(one.images)} for one in self.findings],
            "not_looked_at": list(self.not_looked_at),
        }

    def to_json(self) -> bytes:
        return (json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_json(cls, content: bytes) -> Health:
        """ValueError if the content is not that of `to_json`."""
        try:
            given = json.loads(content)
            findings = tuple(_finding(one) for one in given["findings"])
            return cls(findings, tuple(_text(one) for one in given["not_looked_at"]))
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"it holds no findings: {error}") from error


def _finding(given: Mapping[str, Any]) -> Finding:
    group, value = given["group"], float(given["value"])
    if not (group is None or type(group) is int) or not math.isfinite(value):
        raise ValueError("a finding must have a finite value, and a group as a whole number")
    return Finding(
        _text(given["code"]),
        _text(given["sentence"]),
        _text(given["advice"]),
        value,
        group,
        tuple(_text(name) for name in given["images"]),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"text must be text. Got {value!r}")
    return value
