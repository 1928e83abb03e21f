"""Keeps the tables of a run as people leave its groups, while they work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# Seconds without an edit until the tables are written, which takes a second or two for 20,000
# images and would slow down the next answer.
QUIET = 3.0
# Seconds after which they are written although people go on.
LONGEST = 60.0


class Upkeep:
    """Calls a function some seconds after the last edit, in a thread of its own."""

    def __init__(self, write: Callable[[], object]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        # Since when something has to be written.
        self._since: float | None = None

    def soon(self) -> None:
        """There is something to write."""
        with self._lock:
            now = time.monotonic()
            self._since = now if self._since is None else self._since
            wait = max(0.0, min(QUIET, self._since + LONGEST - now))
            self._stop()
            self._timer = threading.Timer(wait, self._run)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """Write nothing more."""
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        with self._lock:
            self._since = None
        self._write()
