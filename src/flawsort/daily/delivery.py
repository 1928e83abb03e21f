"""Pass events on to a command or to an address, at least once each.

An attempt is noted before it begins, and an event is forgotten after it was passed on. So a process
that is killed in between passes that event on again; its `attempt` is then above 1.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from flawsort.core.errors import OptionError
from flawsort.daily.journal import Due, Journal

# Seconds until a command is ended, and until an address must have answered.
COMMAND_WITHIN = 60.0
ANSWER_WITHIN = 10.0
# The same for all of its answer, with the search for its name and the greeting.
PASSED_ON_WITHIN = 30.0
# The last bytes of its errors that are looked at, of a command that failed.
SHOWN_ERRORS = 4096
# Seconds to the next attempt after the first, the second ... one that failed; the last for all
# further ones.
WAITS = (1.0, 5.0, 25.0, 125.0, 300.0)
# An event that is refused so often is given up. One whose address does not answer is never.
MOST_REFUSALS = 6
# Facts of an event that a command finds in its environment, as FLAWSORT_EVENT and so on.
IN_ENVIRONMENT = ("event", "id", "path", "group", "verdict", "period")


class Refused(Exception):  # noqa: N818
    """The command failed, or the address does not accept the event."""


class Unreachable(Exception):  # noqa: N818
    """Nobody answers at the address."""


@dataclass(frozen=True)
class Actions:
    """What is done with an event. command: a line, or None. address: a URL, or None."""

    command: str | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.address is not None:
            _check_address(self.address)
        if self.command is not None and not _words(self.command):
            raise OptionError("must name a program. Got nothing.", parameter="execute")

    @property
    def names(self) -> tuple[str, ...]:
        """Those that there are: "exec", "post"."""
        given = {"exec": self.command, "post": self.address}
        return tuple(name for name, value in given.items() if value is not None)

    def carry_out(self, due: Due) -> None:
        """Raises Refused or Unreachable if the event was not passed on."""
        event = {**due.event, "attempt": due.attempts + 1}
        if due.action == "exec" and self.command is not None:
            _execute(self.command, event)
        if due.action == "post" and self.address is not None:
            _in_time(partial(_post, self.address, event))


class Deliverer:
    """Passes on the events that are due. say: gets a sentence for each that could not be. now: a
    clock, in seconds since 1970."""

    def __init__(
        self,
        journal: Journal,
        actions: Actions,
        say: Callable[[str], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._journal, self._actions, self._say, self._now = journal, actions, say, now
        # Until when an action that did not answer is left alone, and how often it did not.
        self._silent: dict[str, tuple[float, int]] = {}

    def deliver(self) -> int:
        """Pass on what is due, the oldest first. Returns how many events were passed on or given
        up."""
        return sum(self._tried(due) for due in self._journal.due(self._now()))

    def _tried(self, due: Due) -> bool:
        until, misses = self._silent.get(due.action, (0.0, 0))
        if due.action not in self._actions.names or self._now() < until:
            return False
        self._journal.begin(due, self._now() + _wait(due.attempts))
        what = f"event {due.event.get('id')}, attempt {due.attempts + 1}"
        try:
            self._actions.carry_out(due)
        except Unreachable as error:
            # Meanwhile the others would wait in vain, too.
            self._silent[due.action] = self._now() + _wait(misses), misses + 1
            self._say(f"Not passed on ({what}): {error}. It is tried again.")
            return False
        except Refused as error:
            if due.attempts + 1 < MOST_REFUSALS:
                self._say(f"Not passed on ({what}): {error}. It is tried again.")
                return False
            self._say(f"Given up ({what}): {error}.")
        self._silent.pop(due.action, None)
        self._journal.passed_on(due)
        return True


def _wait(attempts: int) -> float:
    return WAITS[min(attempts, len(WAITS) - 1)]


def _words(command: str) -> list[str] | str:
    """What to run. Windows splits a command line itself, by rules of its own."""
    if sys.platform == "win32":
        return command.strip()
    try:
        return shlex.split(command)
    except ValueError as error:
        raise OptionError(
            f"must be a command with its arguments ({error}). Got '{command}'.", parameter="execute"
        ) from error


def _execute(command: str, event: Mapping[str, Any]) -> None:
    """Run a command, without a shell, with the event on its standard input. What it writes is
    dropped, but the end of its errors is told if it fails."""
    named = {f"FLAWSORT_{key.upper()}": str(event.get(key) or "") for key in IN_ENVIRONMENT}
    said = b""
    try:
        # A file, because a pipe ends only with the last process that the command has started.
        with tempfile.TemporaryFile() as errors:
            ended = subprocess.run(
                _words(command),
                input=json.dumps(event, ensure_ascii=False).encode(),
                stdout=subprocess.DEVNULL,
                stderr=errors,
                timeout=COMMAND_WITHIN,
                env={**os.environ, **named},
                check=False,
            )
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - SHOWN_ERRORS))
            said = errors.read()
    except subprocess.TimeoutExpired:
        raise Refused(f"the command did not end within {COMMAND_WITHIN:.0f} seconds") from None
    except (OSError, ValueError) as error:
        raise Refused(f"the command cannot be run ({error})") from None
    if ended.returncode:
        words = said.decode("utf-8", "replace").strip().splitlines()[-1:]
        why = f" ({words[0][:200]})" if words else ""
        raise Refused(f"the command ended with {ended.returncode}{why}")


def _in_time(send: Callable[[], None]) -> None:
    """Give up on an address that answers byte by byte, so that it cannot stop the sorting."""
    failed: list[Exception] = []

    def work() -> None:
        try:
            send()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PASSED_ON_WITHIN)
    if thread.is_alive():
        raise Unreachable(f"the address took longer than {PASSED_ON_WITHIN:.0f} seconds")
    if failed:
        raise failed[0]


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirection: it could lead to a host that nobody named."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _post(address: str, event: Mapping[str, Any]) -> None:
    """Send an event as JSON, straight to the address: through no proxy, and to no other host."""
    request = Request(
        address,
        json.dumps(event, ensure_ascii=False).encode(),
        {"Content-Type": "application/json", "User-Agent": "flawsort"},
    )
    opener = build_opener(ProxyHandler({}), _NoRedirect)
    try:
        with opener.open(request, timeout=ANSWER_WITHIN) as answer:
            answer.read(1)
    except HTTPError as error:
        error.close()
        if error.code >= 500 or error.code in (408, 429):
            raise Unreachable(f"the address answered with {error.code}") from None
        raise Refused(f"the address answered with {error.code}") from None
    except (OSError, HTTPException) as error:
        why = getattr(error, "reason", None) or error
        raise Unreachable(f"the address does not answer ({why})") from None


def _check_address(address: str) -> None:
    try:
        parts = urlsplit(address)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        right = right and parts.username is None and " " not in address
        right = right and address.isascii() and address.isprintable()
    except ValueError:
        right = False
    if not right:
        raise OptionError(
            "must be http://HOST[:PORT]/PATH or https://..., without a user name. "
            f"Got '{address}'.",
            parameter="post",
        )
