"""What every server says of what went wrong, and what it does not send to anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import JSONResponse, Response

from flawsort.core.errors import first_line
from flawsort.core.text import printable

if TYPE_CHECKING:
    from fastapi.telemetry import (
        TelemetryConfig,
    )  # older versions lack the module, but accept the setting

# The longest error message, in characters.
LONGEST_DETAIL = 2000
# Overrides the settings of the environment.
NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


def explain_system(_: Request, error: Exception) -> Response:
    """Errors of the system, such as a full disk or a folder without read permission."""
    assert isinstance(error, OSError)
    return JSONResponse({"detail": printable(f"{error.strerror or error}.")[:LONGEST_DETAIL]}, 507)


def explain_fault(_: Request, error: Exception) -> Response:
    """Errors that nobody expected, which are logged with their traceback."""
    what = f"{type(error).__name__}: {first_line(error)}"
    detail = f"unexpected {what}. This is a bug in flawsort; the server has logged more of it."
    return JSONResponse({"detail": printable(detail)[:LONGEST_DETAIL]}, 500)


def explain_validation(_: Request, error: Exception) -> Response:
    """A sentence without the value that was sent, which may not be text."""
    assert isinstance(error, RequestValidationError)
    texts = []
    for fault in error.errors()[:8]:
        parts = [str(part) for part in fault["loc"] if part not in ("body", "path", "query")]
        texts.append(f"{'.'.join(parts) or 'The body'}: {fault['msg']}")
    return JSONResponse({"detail": printable("; ".join(texts) + ".")[:LONGEST_DETAIL]}, 422)
