"""What a new run starts from: a reviewed run, a CSV file of labels, folders of examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from flawsort.core.errors import InputError
from flawsort.core.records import Floats, ImageSet, Source
from flawsort.core.text import clean, path_of, pluralise, printable
from flawsort.images.find import find_images
from flawsort.labels.beginning import Known, is_edited, only_begun
from flawsort.labels.carry_over import Earlier
from flawsort.labels.groups import Example
from flawsort.labels.known import (
    KnownLabels,
    LabelledExamples,
    check_case,
    find_examples,
    read_labels,
)

# Images outside the run by their SHA-256: where each is, and the id of its group.
Outside: TypeAlias = dict[str, tuple[Source, int]]
# Gives the usable ones of some images, and their embeddings (n, dim) in the new run.
Embed: TypeAlias = Callable[[ImageSet], tuple[ImageSet, Floats]]


@dataclass(frozen=True)
class Start:
    """What a new run starts from. Each part may be missing. notes: for the user."""

    earlier: Earlier | None = None
    labels: KnownLabels | None = None
    examples: LabelledExamples | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def read(
        cls,
        images: ImageSet,
        *,
        labels_from: Path | None = None,
        labels: Path | None = None,
        examples: Path | None = None,
    ) -> Start | None:
        """Read and check everything before the work begins. images: those of the new run.
        labels_from: a reviewed run. labels: a CSV file. examples: a folder with a folder for each
        kind. None if nothing is given."""
        if labels_from is None and labels is None and examples is None:
            return None
        earlier = None if labels_from is None else Earlier.of(labels_from)
        known = None if labels is None else read_labels(labels, images)
        found = None if examples is None else find_examples(examples)
        check_case(
            [label for some in (known, found) if some for label in some.by_content.values()],
            [] if earlier is None else earlier.names,
        )
        notes: list[str] = []
        if earlier is not None:
            notes.append(earlier.note(images))
        if known is not None:
            notes += [f"From {printable(labels)}: {_counted(known.by_content, 'label')}."]
            notes += known.notes
        if found is not None:
            if known is not None:
                _check_same(found, known)
            notes += [f"From {printable(examples)}: {_counted(found.by_content, 'example')}."]
            notes += found.notes
        return cls(earlier, known, found, tuple(notes))

    @property
    def known_here(self) -> bool:
        """Whether this adds labels of its own to those of an earlier run."""
        return self.labels is not None or self.examples is not None

    def may_replace(self, folder: Path) -> bool:
        """Whether a run that starts so can replace the one in a folder, and nothing is lost."""
        labels_from = None if self.earlier is None else self.earlier.folder
        return may_replace(folder, labels_from, known_here=self.known_here)

    def again(self) -> Start:
        """The same with the earlier run as it is now; itself if nobody has edited that since."""
        if self.earlier is None or self.earlier.is_current():
            return self
        return replace(self, earlier=Earlier.of(self.earlier.folder))

    def known(self, images: ImageSet, embed: Embed) -> tuple[Known | None, list[str]]:
        """Everything that is known of a run, and notes; None if that is nothing. images: of the
        run. embed: gives the embeddings of examples outside the run."""
        known = Known()
        if self.earlier is not None and self.earlier.edited:
            known = self.earlier.known(images)
        elif not self.known_here:
            return None, []
        here = set(images.digests)
        taught = {} if self.examples is None else self.examples.by_content
        labels = {**({} if self.labels is None else self.labels.by_content), **taught}
        known = known.with_labels({one: label for one, label in labels.items() if one in here})
        known, ids = known.with_names(taught.values())
        known = replace(known, spent=known.spent + len(taught.keys() - here))
        outside, notes = self._earlier_examples(images)
        outside = {one: place for one, place in outside.items() if one not in taught}
        if self.examples is not None:
            found = self.examples.images
            for digest, source in zip(found.digests, found.sources, strict=True):
                if digest not in here:
                    outside[digest] = source, ids[taught[digest]]
        return _with_examples(known, outside, embed, notes)

    def _earlier_examples(self, images: ImageSet) -> tuple[Outside, list[str]]:
        """The examples of the earlier run whose files are still there, and a note about others."""
        examples = [] if self.earlier is None else self.earlier.examples(images)
        files = [file for file in (path_of(one.name) for one in examples) if file.is_file()]
        there = find_images(files) if files else None
        source_of = {} if there is None else dict(zip(there.digests, there.sources, strict=True))
        found = {
            one.sha256: (source_of[one.sha256], one.group)
            for one in examples
            if one.sha256 in source_of
        }
        gone = [one.name for one in examples if one.sha256 not in found]
        if not gone or self.earlier is None:
            return found, []
        one = len(gone) == 1
        note = (
            f"{pluralise(len(gone), 'example')} of {printable(self.earlier.folder)} "
            f"{'is' if one else 'are'} left out, because the {'file is' if one else 'files are'} "
            f"gone or changed{': ' if one else ', the first '}{printable(gone[0])}."
        )
        return found, [note]


def may_replace(folder: Path, labels_from: Path | None, *, known_here: bool) -> bool:
    """Whether a run can be replaced by a new one without losing what people said there: the new one
    starts from it, or has labels of its own and the old one has only those that it started with, or
    nothing was said."""
    if labels_from is not None and labels_from.resolve() == folder.resolve():
        return True
    return only_begun(folder) if known_here else not is_edited(folder)


def _with_examples(
    known: Known, outside: Outside, embed: Embed, notes: list[str]
) -> tuple[Known, list[str]]:
    """The same with examples outside the run, which are embedded here."""
    if not outside:
        return known, notes
    digests = sorted(outside)
    sources = tuple(outside[digest][0] for digest in digests)
    names = tuple(_place(source) for source in sources)
    try:
        used, vectors = embed(ImageSet(names, sources, tuple(digests)))
    except InputError as error:  # the run is still useful without examples
        return known, [*notes, f"The examples are left out: {error}"]
    notes += [f"The example {one.name} is left out: it {one.reason}." for one in used.set_aside]
    examples = tuple(
        Example(name, digest, outside[digest][1], np.asarray(vector, np.float32))
        for name, digest, vector in zip(used.names, used.digests, vectors, strict=True)
    )
    return replace(known, examples=examples), notes


def _place(source: Source) -> str:
    """Where an example can be found again."""
    return clean(printable(source.absolute() if isinstance(source, Path) else source))


def _check_same(examples: LabelledExamples, known: KnownLabels) -> None:
    for name, digest in zip(examples.images.names, examples.images.digests, strict=True):
        one, other = examples.by_content[digest], known.by_content.get(digest)
        if other is not None and one != other:
            raise InputError(
                f"The example '{name}' has two labels: it is in the folder of {one!r}, and "
                f"its label in the CSV file is {other!r}. Keep one of them."
            )


def _counted(labels: Mapping[str, str], what: str) -> str:
    kinds = len(set(labels.values()))
    return f"{pluralise(len(labels), what)} of {pluralise(kinds, 'kind')}"
