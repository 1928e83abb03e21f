"""What a streamed fit needs before its first batch: a bank of normals, and who does the work."""

from __future__ import annotations

from dataclasses import dataclass

from flawsort.core.records import Bags, ImageSet
from flawsort.embeddings.method import Method
from flawsort.fitting.fit import LocalWorkers
from flawsort.fitting.source import Intake
from flawsort.scores.engines import Engine
from flawsort.scores.reference import NormalReference


@dataclass(frozen=True)
class Bank:
    """reference: what images are compared with. known: the bags it was made from. images: whose
    they are. notes: what a person should know of it."""

    reference: NormalReference
    known: Bags
    images: ImageSet
    notes: list[str]


def normal_bank(
    normals: ImageSet,
    n_images: int,
    intake: Intake,
    method: Method,
    *,
    engine: Engine,
    random_state: int,
) -> Bank:
    """The normals, or as many of them as fit in memory, ready for so many images."""
    known, used, there_are = intake.some_normals(normals, random_state)
    notes = []
    if there_are > len(known):
        notes.append(
            f"A sample of {len(known):,} of the {there_are:,} normal images is used, as many as "
            "fit in memory."
        )
    reference = NormalReference.from_bags(
        known, exact=method.exact, engine=engine, random_state=random_state
    )
    reference.choose_search(n_images * known.n_patches)
    return Bank(reference, known, used, notes)


def local_workers(intake: Intake) -> LocalWorkers:
    """This process. What it finishes is kept in the cache, where there is one."""
    cache = intake.cache_folder
    setting = {**intake.setting, "max_pixels": intake.view.max_pixels}
    return LocalWorkers(intake.batch, setting, None if cache is None else cache / "parts")
