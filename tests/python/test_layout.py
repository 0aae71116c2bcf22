"""Meshes, placements and layouts: what each rank holds, and what is refused."""

from __future__ import annotations

import copy
import math
import pickle
import random

import pytest
import torch
from torch.distributed import tensor as dtensor

import shardway as sw
from tests.support.specs import silent_mesh

DTYPES = [
    *(torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32),
    *(torch.int64, torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz),
    *(torch.float8_e8m0fnu, torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex32, torch.complex64, torch.complex128),
]


def chunks(x, parts, dim):
    """As torch.chunk, with the empty parts that it leaves out."""
    found = list(torch.chunk(x, parts, dim))
    return found + [x.narrow(dim, 0, 0)] * (parts - len(found))


def held_by(layout, position):
    """The elements that a rank holds, by splitting the tensor as torch does."""
    mesh_shape = layout.mesh.shape
    coordinate = torch.unravel_index(torch.tensor(position), mesh_shape)
    x = torch.arange(math.prod(layout.shape)).view(layout.shape)
    for dim, mesh_dims in enumerate(layout.order):
        for mesh_dim in mesh_dims:
            sizes = layout.placements[mesh_dim].sizes
            parts = chunks(x, mesh_shape[mesh_dim], dim) if sizes is None else x.split(sizes, dim)
            x = parts[coordinate[mesh_dim]]
    return x


def random_layout(draw):
    mesh_shape = draw.choice([(4,), (3,), (2, 2), (2, 3), (2, 2, 2)])
    shape = [draw.randrange(0, 9) for _ in range(draw.randrange(1, 4))]
    ranks = draw.sample(range(20), math.prod(mesh_shape))
    kinds = [sw.Replicate(), sw.Partial(), *(sw.Shard(dim) for dim in range(len(shape)))]
    placements = [draw.choice(kinds) for _ in mesh_shape]
    order = [[m for m, p in enumerate(placements) if p.is_shard(dim)] for dim in range(len(shape))]
    for dim, mesh_dims in enumerate(order):
        draw.shuffle(mesh_dims)
        if mesh_dims and draw.random() < 0.3:
            outermost = mesh_dims[0]
            cuts = sorted(draw.randrange(shape[dim] + 1) for _ in range(mesh_shape[outermost] - 1))
            sizes = [b - a for a, b in zip([0, *cuts], [*cuts, shape[dim]], strict=True)]
            placements[outermost] = sw.Shard(dim, sizes)
    return sw.Layout(shape, torch.float32, sw.Mesh(mesh_shape, ranks), placements, order)


def test_a_box_is_what_torch_chunk_leaves_to_a_rank(seed):
    draw = random.Random(seed)
    for _ in range(300):
        layout = random_layout(draw)
        everything = torch.arange(math.prod(layout.shape)).view(layout.shape)
        for position, rank in enumerate(layout.mesh.ranks):
            offset, extent = layout.box(rank)
            box = everything[tuple(slice(o, o + e) for o, e in zip(offset, extent, strict=True))]
            assert torch.equal(box, held_by(layout, position)), (layout, rank)


def test_the_order_of_shards_says_which_mesh_dim_splits_first():
    mesh = sw.Mesh((2, 2))
    ascending = sw.Layout((5,), torch.float32, mesh, [sw.Shard(0), sw.Shard(0)])
    assert [ascending.box(r) for r in range(4)] == [((0,), (2,)), ((2,), (1,)), ((3,), (1,)), ((4,), (1,))]
    other = ascending.with_([sw.Shard(0), sw.Shard(0)], order=[[1, 0]])
    assert [other.box(r)[0] for r in range(4)] == [(0,), (3,), (2,), (4,)]
    assert (ascending.order, other.order) == (((0, 1),), ((1, 0),))
    assert ascending != other


def test_a_layout_says_what_it_was_made_of():
    mesh = sw.Mesh((2, 4), names=("dp", "tp"))
    layout = sw.Layout(torch.Size((4096, 4095)), torch.bfloat16, mesh, [sw.Shard(-1), sw.Partial("max")])
    assert (layout.shape, layout.dtype, layout.mesh, layout.ndim) == ((4096, 4095), torch.bfloat16, mesh, 2)
    assert layout.placements == (sw.Shard(1), sw.Partial("max"))
    assert layout.order == ((), (0,))
    assert str(layout) == "bf16[4096,4095] on dp=2,tp=4: S1,P(max)"
    assert repr(layout) == (
        "Layout((4096, 4095), torch.bfloat16, Mesh((2, 4), names=('dp', 'tp')), [Shard(1), Partial('max')])"
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_comes_out_as_it_went_in(dtype):
    layout = sw.Layout((4,), dtype, sw.Mesh((2,)), [sw.Shard(0)])
    assert layout.dtype is dtype
    assert pickle.loads(pickle.dumps(layout)).dtype is dtype


def test_torchs_own_mesh_and_placements_are_taken_as_ours():
    theirs = [dtensor.Shard(-1), dtensor.Replicate(), dtensor.Partial("avg")]
    ours = [sw.Shard(1), sw.Replicate(), sw.Partial("avg")]
    mesh = silent_mesh((2, 2, 2), ("a", "b", "c"))
    layout = sw.Layout((4, 4), torch.float32, mesh, theirs)
    assert layout == sw.Layout((4, 4), torch.float32, sw.Mesh((2, 2, 2)), ours)
    assert layout.mesh.names == ("a", "b", "c")
    assert layout.with_(theirs, mesh=mesh) == layout


def test_a_mesh_has_ranks_names_and_parts():
    mesh = sw.Mesh((2, 3), ranks=[5, 4, 3, 2, 1, 0], names=["dp", "tp"])
    assert (mesh.shape, mesh.ranks, mesh.names, mesh.ndim) == ((2, 3), (5, 4, 3, 2, 1, 0), ("dp", "tp"), 2)
    assert (mesh.size(), mesh.size(0), mesh.size("tp"), mesh.size(-1)) == (6, 2, 3, 3)
    assert mesh.submesh("tp", 1).ranks == (2, 1, 0)
    assert mesh.submesh(["tp", 0], 4) == sw.Mesh((3, 2), [5, 2, 4, 1, 3, 0])
    flat = mesh.flattened("dp", "tp")
    assert (flat.shape, flat.ranks, flat.names) == ((6,), mesh.ranks, ("dp_tp",))
    assert sw.Mesh((4,)).names is None
    assert repr(mesh) == "Mesh((2, 3), ranks=(5, 4, 3, 2, 1, 0), names=('dp', 'tp'))"
    assert repr(sw.Mesh((32,), list(range(1, 33)))) == "Mesh((32,), ranks=(1, ..., 32))"


def test_a_device_mesh_becomes_a_mesh_of_its_ranks_and_names():
    theirs = silent_mesh((2, 2), ("a", "b"), ranks=[7, 3, 5, 1], rank=7)
    mesh = sw.Mesh.from_device_mesh(theirs)
    assert (mesh.shape, mesh.ranks, mesh.names) == ((2, 2), (7, 3, 5, 1), ("a", "b"))


VALUES = [
    sw.Mesh((2, 3)),
    sw.Mesh((2,), [4, 2], ["x"]),
    sw.Shard(1),
    sw.Shard(-1),
    sw.Shard(0, (3, 0, 5)),
    sw.Replicate(),
    sw.Partial(),
    sw.Partial("avg"),
    sw.Layout((8, 3), torch.float16, sw.Mesh((3,)), [sw.Shard(0, (3, 0, 5))]),
    sw.Layout((8,), torch.int64, sw.Mesh((2, 2), names=("a", "b")), [sw.Shard(0), sw.Shard(0)], [[1, 0]]),
    sw.Topology(),
    sw.Topology(base_us=1, dims={"tp": (0.5, 100.0)}, host_of_rank=[0, 1, 0], copy_gib_per_s=5),
    sw.Topology(ranks_per_host=2, two_levels=True),
    sw.Link(1.5, 20),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_survive_pickling_and_copying_and_can_be_keys(value):
    for again in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):
        assert again == value
        assert hash(again) == hash(value)
        assert repr(again) == repr(value)
        assert {value: 1}[again] == 1
    assert value != "something else"
    assert [other for other in VALUES if other == value] == [value]


def test_names_of_mesh_dims_do_not_make_layouts_differ():
    a = sw.Layout((4,), torch.float32, sw.Mesh((2,), names=("a",)), [sw.Shard(0)])
    b = sw.Layout((4,), torch.float32, sw.Mesh((2,), names=("b",)), [sw.Shard(0)])
    assert a == b
    assert hash(a) == hash(b)


def test_a_placement_says_its_kind():
    assert isinstance(sw.Shard(0), sw.Placement)
    assert sw.Shard(2).is_shard()
    assert sw.Shard(2).is_shard(2)
    assert not sw.Shard(2).is_shard(1)
    assert sw.Replicate().is_replicate()
    assert sw.Partial().is_partial()
    assert [repr(p) for p in (sw.Shard(0), sw.Shard(1, [2, 0]), sw.Replicate(), sw.Partial(), sw.Partial("mean"))] == [
        "Shard(0)",
        "Shard(1, sizes=(2, 0))",
        "Replicate()",
        "Partial()",
        "Partial('avg')",
    ]


MESH = sw.Mesh((2, 2), names=("dp", "tp"))
R = sw.Replicate()


def layout(placements, shape=(4, 6), dtype=torch.float32, mesh=MESH, order=None):
    return sw.Layout(shape, dtype, mesh, placements, order)


# what is wrong: (the call, words of the message)
MISTAKES = {
    "tensor dim out of range": (lambda: layout([sw.Shard(2), R]), ["layout", "S2", "mesh dim 0", "2-d"]),
    "tensor dim too negative": (lambda: layout([R, sw.Shard(-3)]), ["layout", "-3", "mesh dim 1", "2-d"]),
    "too few placements": (lambda: layout([R]), ["layout", "1 placements", "2-d mesh"]),
    "placements is no sequence": (lambda: layout(R), ["layout: placements", "not a sequence"]),
    "a word as placement": (lambda: layout(["S0", R]), ["'S0'", "not a Shard, Replicate or Partial"]),
    "sizes do not add up": (lambda: layout([sw.Shard(0, [1, 2]), R]), ["add up to 3", "length 4"]),
    "too many sizes": (lambda: layout([sw.Shard(0, [1, 2, 1]), R]), ["3 sizes", "2 ranks"]),
    "a negative size": (lambda: layout([sw.Shard(0, [-1, 5]), R]), ["size of -1"]),
    "no sizes": (lambda: sw.Shard(0, []), ["sizes is empty"]),
    "a ragged shard inside another": (lambda: layout([sw.Shard(0), sw.Shard(0, [1, 3])]), ["ragged", "outermost"]),
    "average of integers": (lambda: layout([sw.Partial("avg"), R], dtype=torch.int32), ["P(avg)", "i32"]),
    "mixed partials": (lambda: layout([sw.Partial("max"), sw.Partial()]), ["P(max)", "P(sum)", "only sum and avg"]),
    "unknown op": (lambda: sw.Partial("band"), ["band", "not one of sum"]),
    "op is no word": (lambda: sw.Partial(3), ["op=3", "not a string"]),
    "order of the wrong mesh dims": (
        lambda: layout([sw.Shard(0), R], order=[[1], []]),
        ["order of dim 0", "[1]", "[0]"],
    ),
    "order too short": (lambda: layout([sw.Shard(0), R], order=[[0]]), ["1 entries", "2-d"]),
    "order of words": (
        lambda: layout([sw.Shard(0), R], order=[["dp"], []]),
        ["order[0][0]", "'dp'", "not a 64-bit integer"],
    ),
    "negative length": (lambda: layout([R, R], shape=(4, -1)), ["dim 1", "-1", "negative"]),
    "length is no integer": (lambda: layout([R, R], shape=(4, 2.5)), ["shape[1]=2.5", "not a 64-bit integer"]),
    "too many elements": (lambda: layout([R, R], shape=(2**40, 2**40)), ["more than 2^52 bytes"]),
    "length beyond 64 bits": (lambda: layout([R, R], shape=(2**70, 1)), ["shape[0]", "64-bit"]),
    "dtype by its name": (lambda: layout([R, R], dtype="float32"), ["dtype='float32'", "not a torch.dtype"]),
    "quantised dtype": (lambda: layout([R, R], dtype=torch.qint8), ["torch.qint8"]),
    "mesh is no mesh": (lambda: layout([R, R], mesh=(2, 2)), ["mesh=(2, 2)", "neither a Mesh nor a DeviceMesh"]),
    "rank outside the mesh": (lambda: layout([R, R]).box(4), ["rank 4", "outside"]),
    "duplicate ranks": (lambda: sw.Mesh((2, 2), [0, 1, 1, 2]), ["mesh", "rank 1", "positions 1 and 2"]),
    "negative rank": (lambda: sw.Mesh((2,), [0, -1]), ["mesh", "rank -1"]),
    "too few ranks": (lambda: sw.Mesh((2, 2), [0, 1, 2]), ["2x2", "needs 4 ranks, not 3"]),
    "empty mesh dim": (lambda: sw.Mesh((2, 0)), ["mesh", "dim 1", "0 ranks"]),
    "huge mesh": (lambda: sw.Mesh((2**20, 2**20)), ["mesh", "more than 1048576 ranks"]),
    "too many names": (lambda: sw.Mesh((2,), names=["a", "b"]), ["2 names for 1 dims"]),
    "equal names": (lambda: sw.Mesh((2, 2), names=["a", "a"]), ["two dims have the name 'a'"]),
    "names is a word": (lambda: sw.Mesh((2, 2), names="ab"), ["names='ab'", "not a sequence"]),
    "unknown name": (lambda: MESH.submesh("pp", 0), ["'pp'", "dp=2,tp=2"]),
    "mesh dim out of range": (lambda: MESH.size(2), ["dim=2", "2-d mesh"]),
    "submesh of a rank outside": (lambda: MESH.submesh("dp", 9), ["rank 9", "outside"]),
    "flattened the wrong way": (lambda: MESH.flattened("tp", "dp"), ["mesh"]),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_a_value_error_that_names_it(what):
    call, words = MISTAKES[what]
    with pytest.raises(ValueError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)
