"""Tensors in shards that go whole to their owners, and back."""

from __future__ import annotations

import os

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

import shardway as sw
from shardway._owners import choose_owners
from tests.support.mesh_reference import held, part
from tests.support.ranks import ranks
from tests.support.refusals import assert_says, assert_usable, message_of

TRANSPORTS = pytest.mark.parametrize("transport", ["shm", "c10d"])
MESH = sw.Mesh((3,))


def layouts(*shapes):
    return [sw.Layout(shape, torch.float32, MESH, [sw.Shard(0)]) for shape in shapes]


def test_the_most_work_goes_first_to_the_rank_with_the_least():
    # Work: 8·8·8 = 512, 4·4·4 = 64, 4·9·4 = 144, 2·100·2 = 400, 5·5·5 = 125, and 7 for a vector.
    shapes = [(8, 8), (4, 4), (4, 9), (2, 100), (5, 5), (7,)]
    assert choose_owners(layouts(*shapes)) == [0, 2, 2, 1, 2, 2]
    assert choose_owners(layouts(*shapes), lambda shape: len(shape)) == choose_owners(layouts(*shapes), [2] * 5 + [1])
    assert choose_owners(layouts((2, 2), (2, 2), (2, 2)), [0, 5, 1]) == [2, 0, 1]


def test_of_equal_work_the_rank_with_the_fewest_bytes_gets_the_next():
    # By bytes 100, 60 and 50 rows go to ranks 0, 1 and 2; the last to rank 2, which has fewest.
    assert choose_owners(layouts((4, 100), (4, 1), (4, 50), (4, 60)), [0, 0, 0, 0]) == [0, 2, 2, 1]


def test_of_equal_ranks_the_one_that_holds_most():
    assert choose_owners([sw.Layout((6, 2), torch.float32, MESH, [sw.Shard(0, (1, 1, 4))])]) == [2]


@pytest.mark.parametrize("count", [5, 64])
def test_the_busiest_owner_has_little_more_than_its_share(count):
    generator = torch.Generator().manual_seed(count)
    shapes = [tuple(torch.randint(1, 40, (2,), generator=generator).tolist()) for _ in range(count)]
    work = [m * n * min(m, n) for m, n in shapes]
    owner = choose_owners(layouts(*shapes))
    loads = [sum(w for w, o in zip(work, owner, strict=True) if o == rank) for rank in range(3)]
    assert max(loads) <= 4 / 3 * max(sum(work) / 3, *work)  # what longest-first promises


@TRANSPORTS
@ranks(1, 2, 3)
def test_there_and_back(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    ragged = (2,) * (size - 1) + (11 - 2 * (size - 1),)
    kinds = [
        ((11, 5), torch.float32, [sw.Shard(0)]),
        ((11, 3), torch.float64, [sw.Shard(0, ragged)]),
        ((4, 400), torch.bfloat16, [sw.Shard(1)]),
        ((300, 200), torch.float32, [sw.Shard(0)]),
        ((0, 4), torch.float32, [sw.Shard(0)]),
        ((6,), torch.float32, [sw.Replicate()]),
    ]
    wholes = [torch.arange(torch.Size(shape).numel()).remainder(100).view(shape).to(dtype) for shape, dtype, _ in kinds]
    lie = [sw.Layout(shape, dtype, sw.Mesh((size,)), placements) for shape, dtype, placements in kinds]
    tensors = [sw.MeshTensor(part(w, held(layout, rank)), layout) for w, layout in zip(wholes, lie, strict=True)]
    before = [t.local.clone() for t in tensors]
    owners = sw.to_owners(tensors)
    assert owners.owner == tuple(choose_owners(lie)) and set(owners.owner) <= set(range(size))
    for step in range(3):
        whole = owners.whole if step == 0 else owners.run()
        assert sorted(whole) == [i for i, owner in enumerate(owners.owner) if owner == rank]
        for i, matrix in whole.items():
            assert torch.equal(matrix, wholes[i]), i
        back = owners.back({i: -matrix - 1 for i, matrix in whole.items()})
        wholes = [-w - 1 for w in wholes]
        for t, given, w in zip(back, tensors, wholes, strict=True):
            assert t.layout == given.layout and torch.equal(t.local, part(w, held(given.layout, rank)))
            given.local.copy_(t.local)  # the next step begins with what came back
    others = [sw.MeshTensor(x.clone(), layout) for x, layout in zip(before, lie, strict=True)]
    for matrix in owners.run(others).values():
        matrix.add_(1)  # in place
    for t, x in zip(owners.back(), before, strict=True):
        assert torch.equal(t.local, x + 1)
    assert f"rank {rank} owns" in owners.explain()
    owners.close()
    assert_usable(rank, size)


@ranks(3)
def test_dtensors_and_addends(rank, size):
    mesh = DeviceMesh("cpu", list(range(size)))
    whole = torch.arange(20.0).view(5, 4)
    sharded = distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None)
    addend = DTensor.from_local(torch.full((3, 3), float(rank)), mesh, [Partial()], run_check=False)
    owners = sw.to_owners([sharded, addend])
    wanted = [whole, torch.full((3, 3), 3.0)]
    for i, matrix in owners.whole.items():
        assert torch.equal(matrix, wanted[i])
    back = owners.back()
    assert all(isinstance(t, DTensor) for t in back)
    assert back[0].placements == (Shard(0),) and torch.equal(back[0].full_tensor(), whole)
    assert back[1].placements == (Replicate(),) and torch.equal(back[1].to_local(), wanted[1])
    sharded.requires_grad_()
    with pytest.raises(ValueError, match="requires grad"):
        sw.to_owners([sharded])
    with torch.no_grad():
        assert len(sw.to_owners([sharded]).owner) == 1


@TRANSPORTS
@ranks(3)
def test_mistakes_are_one_error_on_every_rank(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    os.environ["SHARDWAY_CHECK"] = "1"
    here = rank == 1
    t = sw.MeshTensor(torch.ones(2, 4), layouts((6, 4))[0])

    def says(words, call):
        assert_says(message_of(call), [words, "rank 1"], words)

    says("tensors is an empty list", lambda: sw.to_owners([] if here else [t]))
    says("neither a MeshTensor nor a DTensor", lambda: sw.to_owners([t, 3] if here else [t, t]))
    says("work has 3 entries for 2 tensors", lambda: sw.to_owners([t, t], work=[1, 2, 3] if here else None))
    says("is not a number of at least 0", lambda: sw.to_owners([t], work=[float("nan")] if here else None))
    says("ranks disagree on tensor 0: .* of ranks", lambda: sw.to_owners([t, t], work=[1, 2] if here else [2, 1]))
    owners = sw.to_owners([t, t, t])
    assert owners.owner == (0, 1, 2)
    wrong = {5: torch.ones(6, 4)}
    says(r"new has \[5\], but this rank owns \[1\]", lambda: owners.back(wrong if here else None))
    says("local has shape", lambda: owners.back({1: torch.ones(5, 4)} if here else None))
    assert torch.equal(owners.back()[1].local, torch.ones(2, 4))
    says(r"new has \[5\], but this rank owns \[1\]", lambda: owners.back(wrong if here else None))
    says("2 tensors, but 3 have owners", lambda: owners.run([t, t] if here else None))
    assert torch.equal(owners.run()[rank], torch.ones(6, 4))
    assert_usable(rank, size)
