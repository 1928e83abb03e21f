"""The groups of a run at a version of its edits, and what the model taught by them suggests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from flawsort.labels.groups import Labelling
from flawsort.labels.standing import Shown
from flawsort.labels.suggestions import Suggestions, TeachingSpace, settled, suggest
from flawsort.labels.track import OwnEdits


@dataclass(frozen=True)
class State:
    """The groups at a version. undo, redo: the edit that would be undone or redone, as a sentence,
    or None. spent: the number of labels given. edited: whether any edit is in force. space: gives
    the run's images as the model sees them, which takes a moment the first time. own: what each
    person could undo and redo of their own edits, by name."""

    version: int
    labelling: Labelling
    undo: str | None
    redo: str | None
    spent: int
    edited: bool
    space: Callable[[], TeachingSpace] = field(repr=False, compare=False)
    own: Mapping[str, OwnEdits] = field(default_factory=dict)

    @cached_property
    def suggestions(self) -> Suggestions:
        """The groups of all images, as decided or suggested."""
        return suggest(self.labelling, self.space())

    @property
    def shown(self) -> Shown:
        """What people see of the groups and images."""
        return Shown(self.labelling, self.suggestions.groups)

    @property
    def settled(self) -> Labelling:
        """The groups with every image where it is decided or suggested to be."""
        return settled(self.labelling, self.suggestions)
