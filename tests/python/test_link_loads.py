"""Functions as destinations of a link: what they are given, in which order and memory, and who is told if one fails."""

from __future__ import annotations

import multiprocessing
from multiprocessing.synchronize import Event

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.jobs import Place, run_jobs
from tests.support.mesh_reference import held, part

SHAPES = {"embed": (7, 6), "q": (6, 5), "scale": (3,), "down": (5, 8)}


def whole(name: str, version: int) -> torch.Tensor:
    numbers = torch.arange(torch.Size(SHAPES[name]).numel()) + 1000.0 * version + 0.3
    return numbers.view(SHAPES[name]) + 100 * list(SHAPES).index(name)


def rows(name: str, size: int, dtype: torch.dtype = torch.float32) -> sw.Layout:
    return sw.Layout(SHAPES[name], dtype, sw.Mesh((size,)), [sw.Shard(0)])


def columns(name: str, size: int) -> sw.Layout:
    return sw.Layout(SHAPES[name], torch.float32, sw.Mesh((size,)), [sw.Shard(len(SHAPES[name]) - 1)])


def _publish(place: Place, versions: int, fails: tuple[int, ...] = ()) -> list[str]:
    parts = {name: torch.empty(rows(name, place.size).box(place.rank)[1]) for name in SHAPES}
    told = []
    with place.connect() as link:
        source = link.publish({name: sw.MeshTensor(parts[name], rows(name, place.size)) for name in SHAPES})
        for version in range(1, versions + 1):
            for name, mine in parts.items():
                mine.copy_(part(whole(name, version), held(rows(name, place.size), place.rank)))
            if version in fails:
                with pytest.raises(dist.DistBackendError) as found:
                    source.send()
                told.append(str(found.value))
            else:
                assert source.send() == version
    return told


class _Taken:
    """What a function was given, copied."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.tensors: dict[str, torch.Tensor] = {}
        self.memory: dict[int, int] = {}  # bytes of each storage that was seen

    def __call__(self, name: str, tensor: torch.Tensor) -> None:
        assert not torch.is_grad_enabled()
        self.names.append(name)
        self.tensors[name] = tensor.clone()
        storage = tensor.untyped_storage()
        self.memory[storage.data_ptr()] = storage.nbytes()
        tensor.fill_(float("nan"))  # it may be written, and nobody else sees that


def _load(place: Place, order: tuple[str, ...], max_bytes: int, dtype: torch.dtype) -> None:
    """`scale` has a destination of its own, between Loads."""
    scale = torch.empty(columns("scale", place.size).box(place.rank)[1])
    taken = _Taken()
    with place.connect() as link:
        wanted: dict[str, object] = {n: sw.Load(columns(n, place.size), dtype, taken, max_bytes) for n in order}
        wanted["scale"] = sw.MeshTensor(scale, columns("scale", place.size))
        target = link.subscribe(wanted, cast=True)
        for version in (1, 2):
            taken.names.clear()
            assert target.receive() == version and target.incomplete is None
            assert tuple(taken.names) == order
            for name in order:
                expected = part(whole(name, version), held(columns(name, place.size), place.rank)).to(dtype)
                assert taken.tensors[name].dtype == dtype and torch.equal(taken.tensors[name], expected)
            assert torch.equal(scale, part(whole("scale", version), held(columns("scale", place.size), place.rank)))
        assert len(taken.memory) == 1 and sum(taken.memory.values()) <= max_bytes  # one buffer, in all versions


@pytest.mark.parametrize("max_bytes", [1 << 20, 180])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_functions_get_their_pieces_in_the_order_declared_whatever_fits_at_once(max_bytes, dtype):
    order = ("down", "embed", "q")
    run_jobs({"trainer": (3, lambda p: _publish(p, 2)), "generator": (2, lambda p: _load(p, order, max_bytes, dtype))})


def _load_with_a_failure(place: Place) -> str:
    taken = _Taken()
    fault: list[Exception] = []

    def function(name: str, tensor: torch.Tensor) -> None:
        if fault and name == "q":
            raise fault[0]
        taken(name, tensor)

    with place.connect() as link:
        wanted = {name: sw.Load(columns(name, place.size), torch.float32, function, 180) for name in SHAPES}
        target = link.subscribe(wanted)
        assert target.receive() == 1
        fault += [KeyError("no such layer")] if place.rank == 1 else []
        taken.names.clear()
        with pytest.raises(KeyError if place.rank == 1 else dist.DistBackendError) as found:
            target.receive()
        assert place.rank == 0 or found.value is fault[0]
        assert taken.names == (["embed"] if place.rank == 1 else list(SHAPES))
        assert target.version == 1 and "version 2 did not arrive" in str(target.incomplete)
        assert "no such layer" in str(target.incomplete)
        fault.clear()
        assert target.receive() == 3 and target.incomplete is None
        for name in SHAPES:
            expected = part(whole(name, 3), held(columns(name, place.size), place.rank))
            assert torch.equal(taken.tensors[name], expected)
    return str(found.value)


def test_an_error_in_a_function_is_raised_there_told_to_all_and_the_next_version_comes():
    jobs = {"trainer": (2, lambda place: _publish(place, 3, fails=(2,))), "generator": (2, _load_with_a_failure)}
    found = run_jobs(jobs)
    assert found["generator"][1] == "'no such layer'"
    for text in (found["generator"][0], *(text for texts in found["trainer"] for text in texts)):
        assert "role generator rank 1: the Load of q raised KeyError: 'no such layer'" in text


def _load_until_interrupted(place: Place) -> None:
    def function(name: str, tensor: torch.Tensor) -> None:
        raise KeyboardInterrupt

    with place.connect() as link:
        target = link.subscribe({name: sw.Load(columns(name, 1), torch.float32, function) for name in SHAPES})
        with pytest.raises(KeyboardInterrupt):
            target.receive()
        assert "version 1 did not arrive" in str(target.incomplete)
        with pytest.raises(dist.DistBackendError, match="the link is closed"):
            target.receive()


def test_an_interrupt_in_a_function_ends_the_version_and_the_link():
    jobs = {"trainer": (1, lambda place: _publish(place, 1, fails=(1,))), "generator": (1, _load_until_interrupted)}
    (told,) = run_jobs(jobs)["trainer"][0]
    assert "role generator" in told


def _subscribe_wrongly(place: Place, is_published: Event) -> str:
    layout = columns("down", place.size)
    beyond = sw.Layout(SHAPES["embed"], torch.float32, sw.Mesh((3,)), [sw.Shard(0)])
    with place.connect() as link:
        wrong = {
            "down": sw.Load(layout, torch.float32, print, 79),
            "embed": sw.Load(beyond, torch.float32, print),
            "q": sw.Load(columns("q", place.size), torch.bfloat16, print, 1 + place.rank),
            "scale": sw.Load(columns("scale", place.size), torch.float32, print, 0),
        }
        is_published.wait(30)
        with pytest.raises(ValueError) as found:
            link.subscribe(wrong)
    return str(found.value)


def _publish_to_nobody(place: Place, is_published: Event) -> str:
    with place.connect() as link:
        with pytest.raises(ValueError, match="w: a Load is a destination and cannot be sent"):
            link.publish({"w": sw.Load(rows("q", place.size), torch.float32, print)})
        source = link.publish({name: whole(name, 1) for name in SHAPES})
        is_published.set()
        with pytest.raises(ValueError) as found:
            source.send()
    return str(found.value)


def test_what_is_wrong_with_a_load_is_in_one_error_on_both_sides():
    is_published = multiprocessing.Event()  # else only the generator would be told, of its own mistakes
    found = run_jobs(
        {
            "trainer": (2, lambda place: _publish_to_nobody(place, is_published)),
            "generator": (2, lambda place: _subscribe_wrongly(place, is_published)),
        }
    )
    for text in (*found["generator"], *found["trainer"]):
        assert "down: the piece of rank 0 takes 80 bytes, more than max_bytes=79 of its Load" in text
        assert "embed: its mesh has rank 2, but the role has 2 ranks (role generator rank 1)" in text
        assert "q: bfloat16[6,5] to a Load of 1 bytes" in text and "to a Load of 2 bytes" in text
        assert "scale: max_bytes=0 of its Load is not a positive number of bytes (role generator rank 0)" in text


@pytest.mark.parametrize(
    "load, words",
    [
        (sw.Load((2, 3), torch.float32, print), "the layout of its Load is a tuple"),  # type: ignore[arg-type]
        (sw.Load(rows("q", 1), "bfloat16", print), "the dtype of its Load is a str"),  # type: ignore[arg-type]
        (sw.Load(rows("q", 1), torch.float32, None), "a NoneType, which cannot be called"),  # type: ignore[arg-type]
    ],
)
def test_a_load_that_is_none_says_why(load, words):
    with pytest.raises(ValueError, match=words):
        load.check()
