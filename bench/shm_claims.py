"""What bench/shm.py claims, from its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.mpis import OPEN_MPI, is_mpi
from bench.report import Claim, bytes_text, geometric_mean, not_measured
from bench.shm_contenders import (
    COPIES,
    OURS,
    OURS_SHARED,
    OUT,
    STEADY,
    TENSORS,
    TENSORS_SHARED,
    with_out,
)
from bench.shm_rows import KIB, MIB, OPS, ShmRow

TWO, FOUR, EIGHT = 2, 4, 8
FROM, TO = 1 * KIB, 32 * MIB
SHARED_FROM = 16 * KIB


@dataclass(frozen=True)
class Place:
    """Where two contenders are compared."""

    op: str
    output: str
    ranks: int
    shape: str
    bytes: int

    def __str__(self) -> str:
        return f"{bytes_text(self.bytes)}, {self.shape}"


class Figures:
    """The times, by place and contender."""

    def __init__(self, rows: Iterable[ShmRow]) -> None:
        self._us: dict[Place, dict[str, float]] = {}
        for row in rows:
            place = Place(row.op, row.output, row.ranks, row.shape, row.bytes)
            self._us.setdefault(place, {})[row.contender] = row.us

    def places(self, op: str, output: str, ranks: int, at_least: int = FROM, at_most: int = TO) -> list[Place]:
        return [
            place
            for place in self._us
            if (place.op, place.output, place.ranks) == (op, output, ranks) and at_least <= place.bytes <= at_most
        ]

    def us(self, place: Place, contender: str) -> float | None:
        return self._us.get(place, {}).get(contender)

    def best(self, place: Place, belongs: Callable[[str], bool]) -> float | None:
        found = [us for contender, us in self._us.get(place, {}).items() if belongs(contender)]
        return min(found, default=None)


Ratios = dict[Place, float]


def times_faster(figures: Figures, places: list[Place], ours: str, peer: Callable[[str], bool]) -> Ratios:
    ratios: Ratios = {}
    for place in places:
        mine, best = figures.us(place, ours), figures.best(place, peer)
        if mine is not None and best is not None:
            ratios[place] = best / mine
    return ratios


def claims(figures: Figures) -> list[Claim]:
    return [
        *_against_mpi(figures, "all_gather_v", TWO, everywhere=1.0, in_the_mean=2.0),
        *_against_mpi(figures, "reduce_scatter_v", TWO, everywhere=1.0, in_the_mean=2.5),
        *_against_a_copy(figures, "all_gather_v", 1.25, "the total"),
        *_against_a_copy(figures, "reduce_scatter_v", 1.0, "the bytes that it reads"),
        *(claim for op in OPS[:2] for claim in _steady(figures, op)),
        *(claim for op in OPS for claim in _against_mpi(figures, op, FOUR, everywhere=1 / 1.1, in_the_mean=1.3)),
        *_on_many_cores(figures),
    ]


def _worst(ratios: Ratios) -> tuple[Place, float]:
    place = min(ratios, key=lambda place: ratios[place])
    return place, ratios[place]


def _against_mpi(figures: Figures, op: str, ranks: int, everywhere: float, in_the_mean: float) -> list[Claim]:
    what = f"{op}, {ranks} ranks, ordinary memory, out=, 1 KiB to 32 MiB"
    limit = "never slower than" if everywhere == 1.0 else f"at most {1 / everywhere:.2g} times the time of"
    of_each = f"{what}: {limit} the best MPI"
    of_all = f"{what}: at least {in_the_mean:g} times faster in the geometric mean"
    ratios = times_faster(figures, figures.places(op, OUT, ranks), OURS, is_mpi)
    if not ratios:
        return [not_measured(of_each), not_measured(of_all)]
    place, least = _worst(ratios)
    mean = geometric_mean(list(ratios.values()))
    return [
        Claim(of_each, f"{least:.2f} times as fast at {place}", least >= everywhere),
        Claim(of_all, f"{mean:.2f} times", mean >= in_the_mean),
    ]


def _against_a_copy(figures: Figures, op: str, limit: float, of_what: str) -> list[Claim]:
    places = figures.places(op, OUT, TWO, at_least=SHARED_FROM)
    text = f"{op}, 2 ranks, shared memory, 16 KiB to 32 MiB: within {limit:g} times a plain copy of {of_what}"
    ratios = times_faster(figures, places, OURS_SHARED, lambda name: name in COPIES)
    if not ratios:
        return [not_measured(text)]
    place, least = _worst(ratios)
    return [Claim(text, f"{1 / least:.2f} times at {place}", 1 / least <= limit)]


def _steady(figures: Figures, op: str, limit: float = 1.3) -> list[Claim]:
    ratios: Ratios = {}
    for place in figures.places(op, STEADY, TWO):
        for contender in (TENSORS, TENSORS_SHARED):
            steady, out = figures.us(place, contender), figures.us(place, with_out(contender))
            if steady is not None and out is not None:
                ratios[place] = min(ratios.get(place, 1e9), out / steady)
    text = f"{op}, 2 ranks, tensors, fresh outputs with three alive: within {limit:g} times the figures of out="
    if not ratios:
        return [not_measured(text)]
    place, least = _worst(ratios)
    return [Claim(text, f"{1 / least:.2f} times at {place}", 1 / least <= limit)]


def _on_many_cores(figures: Figures) -> list[Claim]:
    found = []
    for op, contender, limit in (
        ("all_gather_v", OURS_SHARED, 2.0),
        ("reduce_scatter_v", OURS_SHARED, 3.0),
        ("all_gather_v", OURS, 1.3),
        ("reduce_scatter_v", OURS, 1.3),
    ):
        places = figures.places(op, OUT, EIGHT)
        ratios = times_faster(figures, places, contender, lambda name: name.startswith(OPEN_MPI))
        text = f"{op}, 8 ranks, {contender}: at least {limit:g} times faster than Open MPI in the geometric mean"
        if ratios:
            mean = geometric_mean(list(ratios.values()))
            found.append(Claim(text, f"{mean:.2f} times", mean >= limit))
        else:
            found.append(not_measured(text))
    return found
