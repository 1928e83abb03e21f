"""The exception tree.

FlawsortError               any expected error; the command line prints its message and exits with 2
├── InputError              images, folders or arrays that cannot be used
├── OptionError             a parameter or command-line option with a value that is not accepted
├── BackboneError           a backbone that cannot be loaded, verified or run
└── RunError                a run folder that is damaged, of another format, or not a run at all
"""

from __future__ import annotations


class FlawsortError(Exception):
    """Base of every error that flawsort raises on purpose.

    parameter: the name of the parameter at fault, if there is one. It is put in front of the
    problem: "must be at least 2. Got 1." becomes "n_clusters must be at least 2. Got 1.". The
    command line uses the name of its option instead: "--clusters must be ...".
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
    """A parameter with a value that is not accepted: its name, the accepted values, the value."""


class BackboneError(FlawsortError):
    """A backbone that cannot be loaded, verified or run."""


class RunError(FlawsortError):
    """A run folder that is damaged, of another format, or not a run at all."""


class Replaced(RunError):  # noqa: N818
    """The run, or its file of edits, is no longer the one that was opened."""


def first_line(error: Exception) -> str:
    """The first line of another library's error message, at most 300 characters."""
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__
