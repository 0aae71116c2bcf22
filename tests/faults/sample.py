"""A small part of the matrix in which every two values of two axes meet, where the whole has them together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from tests.faults.axes import Cell

Pair = tuple[str, str]


def _pairs(cell: Cell) -> set[Pair]:
    values = (f"call {cell.call}", f"group {cell.group}", f"moment {cell.moment}", f"fault {cell.fault}")
    return set(itertools.combinations(values, 2))


def pairwise(cells: Sequence[Cell]) -> list[Cell]:
    """Greedy, and the same in every run: the cell with the most pairs that are still missing comes next."""
    missing: set[Pair] = set().union(*map(_pairs, cells)) if cells else set()
    open_cells = {cell: _pairs(cell) for cell in cells}
    chosen = []
    while missing:
        best = max(open_cells, key=lambda cell: len(open_cells[cell] & missing))
        missing -= open_cells.pop(best)
        chosen.append(best)
        open_cells = {cell: pairs for cell, pairs in open_cells.items() if pairs & missing}
    return chosen


def uncovered(cells: Iterable[Cell], chosen: Iterable[Cell]) -> set[Pair]:
    have: set[Pair] = set().union(*map(_pairs, chosen))
    return set().union(*map(_pairs, cells)) - have
