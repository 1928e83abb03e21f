"""What this machine has."""

from __future__ import annotations

import os
import sys


def memory() -> int | None:
    """The memory of this machine in bytes; None if the system does not say it."""
    if sys.platform == "win32":
        from flawsort.core import windows

        return windows.memory()
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
