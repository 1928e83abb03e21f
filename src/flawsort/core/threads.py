"""Work in threads and in blocks: an ordered, bounded map, and BLAS limited to one thread."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")
Value = TypeVar("Value", bound=np.generic)


# The current limit, set by `limit`.
_limit: int | None = None
# The number of modules when the libraries of BLAS were looked for, and those found. Looking takes
# milliseconds, and only another module can load another library.
_libraries: tuple[int, ThreadpoolController] | None = None


def n_threads() -> int:
    """The number of processors this process may use, or the limit if one is set."""
    if _limit is not None:
        return _limit
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def limit(threads: int) -> Iterator[None]:
    """Limit the threads of the whole process to this many, both flawsort's and those of BLAS."""
    global _limit
    from threadpoolctl import threadpool_limits

    before, _limit = _limit, threads
    try:
        with threadpool_limits(limits=threads):
            yield
    finally:
        _limit = before


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS to one thread per product, because the products themselves run in threads."""
    global _libraries
    from threadpoolctl import ThreadpoolController

    if _libraries is None or _libraries[0] != len(sys.modules):
        _libraries = len(sys.modules), ThreadpoolController()
    with _libraries[1].limit(limits=1, user_api="blas"):
        yield


def blocks(n_rows: int, at_once: int) -> Iterator[slice]:
    """The rows 0 to n_rows in blocks of `at_once`; the last block may be shorter."""
    for start in range(0, n_rows, at_once):
        yield slice(start, min(start + at_once, n_rows))


def in_threads(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    threads: int | None = None,
    ahead: int = 2,
) -> Iterator[Result]:
    """The results of `work` in the order of the items.

    threads: None for one per processor.
    ahead: how many items per thread may be computed before they are consumed. It bounds the memory.
    """
    threads = threads or n_threads()
    remaining = iter(items)
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Result]] = deque(
            pool.submit(work, item) for item in islice(remaining, ahead * threads)
        )
        try:
            while waiting:
                result = waiting.popleft().result()
                waiting.extend(pool.submit(work, item) for item in islice(remaining, 1))
                yield result
        finally:
            for future in waiting:
                future.cancel()


def in_blocks(work: Callable[[slice], NDArray[Value]], n_rows: int, at_once: int) -> NDArray[Value]:
    """(n_rows, ...): the concatenated results of `work` for blocks of at most `at_once` rows. The
    blocks run in threads, with one BLAS thread each."""
    with single_threaded_blas():
        return np.concatenate(list(in_threads(work, blocks(n_rows, at_once))))
