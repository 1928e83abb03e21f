"""Take over the labels of a reviewed run: into another run with more images or another k."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flawsort.core.records import ImageSet
from flawsort.core.text import pluralise, printable
from flawsort.labels.beginning import Known
from flawsort.labels.groups import Example, Labelling
from flawsort.labels.session import Session
from flawsort.labels.store import EditStore
from flawsort.labels.suggestions import decided
from flawsort.runs.folder import EDITS


@dataclass(frozen=True)
class Earlier:
    """A reviewed run. digests: SHA-256 of its images, by row. spent: the number of labels given
    there. edited: whether any edit is in force. version: of its edits."""

    folder: Path
    labelling: Labelling
    digests: tuple[str, ...]
    spent: int = 0
    edited: bool = True
    version: int = 0

    @classmethod
    def of(cls, folder: Path) -> Earlier:
        with Session(folder) as session:
            now, digests = session.state, tuple(session.run.table["sha256"])
            return cls(folder, now.labelling, digests, now.spent, now.edited, now.version)

    def is_current(self) -> bool:
        """Whether nobody has edited the run since."""
        with EditStore(self.folder / EDITS) as store:
            return store.version() == self.version

    @property
    def names(self) -> list[str]:
        """The names of the groups that have one. Two that differ in case are left out: earlier
        versions allowed them."""
        named = [group.name for group in self.labelling.groups.values() if group.name]
        lower = [name.casefold() for name in named]
        return [name for name in named if lower.count(name.casefold()) == 1]

    @property
    def decided_groups(self) -> Mapping[str, int]:
        """The group of each decided image, by its SHA-256. Leaves out images in unsure groups, and
        copies of one image that were put into different groups."""
        unsure = set(self.labelling.with_role("unsure"))
        found: dict[str, set[int]] = {}
        for row in np.flatnonzero(decided(self.labelling)):
            found.setdefault(self.digests[row], set()).add(int(self.labelling.labels[row]))
        unique = {digest: groups.pop() for digest, groups in found.items() if len(groups) == 1}
        return {digest: group for digest, group in unique.items() if group not in unsure}

    def known(self, images: ImageSet) -> Known:
        """What people said there. An example that is now one of the images is decided as such. The
        other examples are left out: their embeddings are those of the earlier run."""
        now, here = self.labelling, set(images.digests)
        rows = list(enumerate(self.digests))
        taught = {one.sha256: one.group for one in now.examples if one.sha256 in here}
        return Known(
            dict(now.groups),
            now.next_id,
            {**taught, **self.decided_groups},
            {digest: now.several[row] for row, digest in rows if row in now.several},
            {digest: now.rejected[row] for row, digest in rows if row in now.rejected},
            before=dict(zip(self.digests, now.labels.tolist(), strict=True)),
            threshold=now.threshold,
            different=now.different,
            notes={digest: now.notes[row] for row, digest in rows if row in now.notes},
            spent=self.spent,
        )

    def examples(self, images: ImageSet) -> list[Example]:
        """The images outside the earlier run that taught it and are none of the images."""
        here = set(images.digests)
        return [one for one in self.labelling.examples if one.sha256 not in here]

    def note(self, images: ImageSet) -> str:
        """A line that says which labels are taken over for these images."""
        source = printable(self.folder)
        if not self.edited:
            return f"{source} has not been reviewed yet, so no labels were taken from it."
        known_groups = self.decided_groups
        names = sum(bool(group.name) for group in self.labelling.groups.values())
        there = sum(digest in known_groups for digest in images.digests)
        found = [pluralise(names, "name", none="no"), pluralise(there, "decided image", none="no")]
        examples = self.labelling.examples
        if examples:
            found.append(pluralise(len(examples), "example"))
        only = "" if names or known_groups or examples else ", only the numbers of its groups"
        return f"From {source}: {', '.join(found[:-1])} and {found[-1]}{only}."
