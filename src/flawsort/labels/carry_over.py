"""Carry the labels of a reviewed run over to another run with more images or another k."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flawsort.clusters.constrained import carry_over
from flawsort.core.records import ImageSet
from flawsort.core.text import pluralise, printable
from flawsort.labels.edit_checks import Edit
from flawsort.labels.edits import CARRY
from flawsort.labels.groups import Labelling
from flawsort.labels.store import EditStore, Session
from flawsort.runs.folder import EDITS
from flawsort.runs.run import Run


@dataclass(frozen=True)
class Earlier:
    """A reviewed run. digests: SHA-256 of its images, by row. spent: the number of labels given
    there. edited: whether any edit is in force."""

    folder: Path
    labelling: Labelling
    digests: tuple[str, ...]
    spent: int = 0
    edited: bool = True

    @classmethod
    def of(cls, folder: Path) -> Earlier:
        with Session(folder) as session:
            now, digests = session.state, tuple(session.run.table["sha256"])
            return cls(folder, now.labelling, digests, now.spent, now.edited)

    @property
    def confirmed_groups(self) -> Mapping[str, int]:
        """The group of each confirmed image, by its SHA-256. Leaves out images in unsure groups,
        and copies of one image that were put into different groups."""
        unsure = set(self.labelling.with_role("unsure"))
        found: dict[str, set[int]] = {}
        for row in np.flatnonzero(self.labelling.confirmed):
            found.setdefault(self.digests[row], set()).add(int(self.labelling.labels[row]))
        unique = {digest: groups.pop() for digest, groups in found.items() if len(groups) == 1}
        return {digest: group for digest, group in unique.items() if group not in unsure}

    def note(self, images: ImageSet) -> str:
        """A line that says which labels are carried over to these images."""
        source = printable(self.folder)
        if not self.edited:
            return f"{source} has not been reviewed yet, so no labels were taken from it."
        known_groups = self.confirmed_groups
        names = sum(bool(group.name) for group in self.labelling.groups.values())
        confirmed = sum(digest in known_groups for digest in images.digests)
        only = "" if names or known_groups else ", only the numbers of its groups"
        return (
            f"From {source}: {pluralise(names, 'name', none='no')} and "
            f"{pluralise(confirmed, 'confirmed image', none='no')}{only}."
        )

    def carried(self, run: Run) -> Edit:
        """The first edit of another run. Its groups get the ids, names and roles of the groups that
        they continue; confirmed images and images with several kinds stay so."""
        before = dict(zip(self.digests, self.labelling.labels.tolist(), strict=True))
        row_before = {digest: row for row, digest in enumerate(self.digests)}
        digests, known_groups = run.table["sha256"], self.confirmed_groups
        labels, _ = carry_over(
            run.labels,
            np.array([before.get(digest, -1) for digest in digests], np.int64),
            np.array([known_groups.get(digest, -1) for digest in digests], np.int64),
            self.labelling.next_id,
        )
        # Confirmed groups win, even those confirmed after the clustering of this run had started.
        pairs = zip(digests, labels, strict=True)
        labels = np.array([known_groups.get(digest, label) for digest, label in pairs])
        several: dict[str, list[int]] = {}
        for row, digest in enumerate(digests):
            others = self.labelling.several.get(row_before.get(digest, -1))
            if others is not None:
                several[str(row)] = list(others)
        return Edit(CARRY, self._payload(run, labels.tolist(), several))

    def _payload(
        self, run: Run, labels: list[int], several: Mapping[str, list[int]]
    ) -> dict[str, Any]:
        known = self.labelling.groups
        known_groups = self.confirmed_groups
        named = [group.id for group in known.values() if group.name]
        others = [group for kinds in several.values() for group in kinds]
        return {
            "groups": [
                {
                    "id": group,
                    "name": known[group].name if group in known else "",
                    "role": known[group].role if group in known else "flaw",
                }
                for group in sorted({*labels, *named, *others})
            ],
            "labels": labels,
            "confirmed": [
                row for row, sha in enumerate(run.table["sha256"]) if sha in known_groups
            ],
            "several": dict(several),
            "k": run.n_clusters,
            "spent": self.spent,
        }

    def write(self, run: Run, folder: Path) -> None:
        """Write the carried labels as the first edit of another run, into its folder. Labels given
        since this object was read count too. Writes nothing if this run has not been reviewed."""
        now = Earlier.of(self.folder)
        if not now.edited:
            return
        with EditStore(folder / EDITS) as store:
            store.append(now.carried(run), 0, "flawsort")
