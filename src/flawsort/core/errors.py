"""The exception tree.

FlawsortError               anything flawsort refuses to do; the command line prints it and exits 2
├── InputError              images, folders or arrays that cannot be used
├── OptionError             a parameter or command-line option outside what is accepted
├── BackboneError           a backbone that cannot be loaded, verified or run
└── RunError                a run folder that is damaged, of another format, or not a run at all
"""

from __future__ import annotations


class FlawsortError(Exception):
    """Base of every error that flawsort raises on purpose.

    parameter: the one at fault, where it is one. It begins the sentence that the problem goes on
    with, and the command line puts its option there: "must be at least 2. Got 1." of n_clusters
    reads "n_clusters must be at least 2. Got 1.", or "--clusters must be ...".
    """

    def __init__(self, problem: str = "", *, parameter: str | None = None) -> None:
        super().__init__(problem)
        self.parameter = parameter

    def __str__(self) -> str:
        problem = super().__str__()
        return problem if self.parameter is None else f"{self.parameter} {problem}"


class InputError(FlawsortError):
    """Images, folders or arrays that cannot be used."""


class OptionError(FlawsortError, ValueError):
    """A parameter outside what is accepted: its name, what it must be, what it was."""


class BackboneError(FlawsortError):
    """A backbone that cannot be loaded, verified or run."""


class RunError(FlawsortError):
    """A run folder that is damaged, of another format, or not a run at all."""


def first_line(error: Exception) -> str:
    """What an error of somebody else's says, short enough for a line of ours."""
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__
