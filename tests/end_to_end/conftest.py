"""The browser of the tests, where there is one."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("playwright") is not None:
    from helpers.review_desk import browser, context, decided, desk, server, tabs  # noqa: F401
