"""Runs many cells: some processes at once, each with one cell at a time, since most cells wait for a timeout."""

from __future__ import annotations

import gc
import multiprocessing.connection
import os
import traceback
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from tests.faults.axes import RANKS, Cell
from tests.faults.cell import run_cell
from tests.faults.observation import Record, Seen
from tests.support.programs import end_all, end_with_parent


def run_cells(cells: Sequence[Cell], jobs: int) -> Iterator[Record]:
    """In the order in which they end. Closing the iterator ends what is under way."""
    gc.collect()
    gc.freeze()  # what is here now is never looked through by the ranks: that took longer than the cell
    workers: dict[Connection, int] = {}
    waiting = list(reversed(cells))
    try:
        for _ in range(min(jobs, len(cells))):
            link, pid = _worker()
            workers[link] = pid
            link.send(waiting.pop())
        busy = set(workers)
        while busy:
            for link in multiprocessing.connection.wait(list(busy)):
                assert isinstance(link, Connection)
                yield link.recv()
                if waiting:
                    link.send(waiting.pop())
                else:
                    busy.discard(link)
    finally:
        for link, pid in workers.items():
            link.close()
            end_all(pid)
        gc.unfreeze()


def _worker() -> tuple[Connection, int]:
    ours, theirs = Pipe()
    pid = os.fork()
    if pid:
        theirs.close()
        return ours, pid
    try:
        ours.close()
        end_with_parent()
        while True:
            cell = theirs.recv()
            try:
                theirs.send(run_cell(cell))
            except Exception:
                trouble = traceback.format_exc()
                theirs.send(Record(cell.name, 0.0, [Seen(r) for r in range(RANKS)], trouble=trouble))
    except (EOFError, KeyboardInterrupt):
        pass
    finally:
        os._exit(0)
