"""Errors: the parameter at fault begins the sentence."""

from __future__ import annotations

import pickle

import pytest

from flawsort import BackboneError, FlawsortError, InputError, OptionError, RunError


@pytest.mark.parametrize("kind", [FlawsortError, InputError, OptionError, BackboneError, RunError])
def test_the_parameter_begins_the_sentence(kind: type[FlawsortError]) -> None:
    error = kind("must be at least 2. Got 1.", parameter="n_clusters")
    assert str(error) == "n_clusters must be at least 2. Got 1."
    error.parameter = "--clusters"
    assert str(error) == "--clusters must be at least 2. Got 1."
    assert str(kind("No images.")) == "No images."


def test_it_comes_back_from_another_process() -> None:
    error = pickle.loads(pickle.dumps(OptionError("must be 2.", parameter="n_clusters")))
    assert (type(error), str(error)) == (OptionError, "n_clusters must be 2.")
