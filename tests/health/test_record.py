"""Findings as they are saved with a run."""

from __future__ import annotations

import json

import pytest

from flawsort.health.record import Finding, Health

FOUND = Health(
    (Finding("same-place", "It is there.", "Look.", 0.5, 2, ("a.png", "ä.png")),), ("Not this.",)
)


def test_they_come_back_as_they_were() -> None:
    assert Health.from_json(FOUND.to_json()) == FOUND
    assert Health.from_json(Health().to_json()) == Health()
    assert json.loads(FOUND.to_json()) == FOUND.to_dict()
    assert str(FOUND) == "It is there. Look.\nNot this."
    assert str(Health()) == "Nothing was found that speaks against the groups."


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"7", b'{"findings": []}', b'{"findings": 3, "not_looked_at": []}',
        b'{"findings": [{}], "not_looked_at": []}', b'{"findings": [], "not_looked_at": [1]}',
        FOUND.to_json().replace(b"0.5", b"NaN"), FOUND.to_json().replace(b": 2", b": true"),
        FOUND.to_json().replace(b'"It is there."', b"null"), b"[" * 100_000,
    ],
)  # fmt: skip
def test_other_content_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Health.from_json(content)
