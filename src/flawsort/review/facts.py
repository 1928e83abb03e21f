"""Facts about the images of a run that pages filter by and that the run does not hold: their lots,
and the sizes of their files."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from flawsort.core.errors import OptionError
from flawsort.core.text import either
from flawsort.core.threads import n_threads
from flawsort.images.decode import UnreadableImage, upright_size
from flawsort.images.lookup import Lookup, local_path
from flawsort.review.schemas import LotsBody, SizesBody
from flawsort.runs.run import Run
from flawsort.runs.trends import SPANS, in_order, periods, periods_of

# By the CSV file that the server was started with.
BY_FILE = "lots"


def lots_of(run: Run, by: str, table: Lookup | None) -> LotsBody:
    """The lot of each image. by: one of SPANS, or BY_FILE. table: of lots, if there is one."""
    if by == BY_FILE and table is None:
        raise OptionError(
            "by is lots, but there is no table of lots. Start the review with --lots and a CSV "
            f"file, or use {either(SPANS)}."
        )
    if by not in (*SPANS, BY_FILE):
        raise OptionError(f"must be {either((*SPANS, BY_FILE))}. Got '{by}'.", parameter="by")
    names, paths = run.names, run.table["path"]
    if by == BY_FILE and table is not None:
        found = periods_of(table, names, paths)
    else:
        found = periods(names, paths, by)
    lots = in_order(found)
    place = {lot: number for number, lot in enumerate(lots)}
    return LotsBody(by=by, lots=lots, of=[place[lot] for lot in found])


def sizes_of(run: Run) -> SizesBody:
    """Width and height of each upright image, from the headers of its files. None for a file that
    is gone, and for one in an object store: thousands of requests would take minutes."""
    most = run.view.max_pixels

    def size(path: str) -> tuple[int | None, int | None]:
        source = local_path(path)
        try:
            # Opening a pipe would wait for ever.
            if source is None or not source.is_file():
                return None, None
            return upright_size(source, most)
        except (UnreadableImage, OSError):
            return None, None

    with ThreadPoolExecutor(n_threads()) as pool:
        found = list(pool.map(size, run.table["path"]))
    return SizesBody(width=[wide for wide, _ in found], height=[high for _, high in found])
