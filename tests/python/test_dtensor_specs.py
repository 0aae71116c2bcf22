"""Layouts from torch's DTensorSpec and back, and the specs that are no layout."""

from __future__ import annotations

import random

import pytest
import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrderEntry
from torch.distributed.tensor._ops._math_ops import _NormPartial
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _MaskPartial, _StridedShard

import shardway as sw
from tests.support.specs import meta, random_order, random_placements, silent_mesh, spec

MESHES = [(4,), (3,), (2, 2), (2, 3), (2, 2, 2)]


def random_spec(draw, mesh=None):
    mesh = mesh or silent_mesh(draw.choice(MESHES))
    shape = [draw.randrange(1, 20) for _ in range(draw.randrange(1, 4))]
    placements = random_placements(draw, mesh.ndim, len(shape))
    return spec(mesh, placements, shape, order=random_order(draw, placements))


def test_a_spec_comes_back_as_it_was(seed):
    draw = random.Random(seed)
    for _ in range(300):
        theirs = random_spec(draw)
        ours = sw.Layout.from_spec(theirs)
        assert ours.to_spec(theirs.mesh) == theirs
        assert ours.to_spec() == theirs  # the mesh without groups equals the one with them
        assert sw.Layout.from_spec(ours.to_spec()) == ours


def assert_boxes_as_torch_has_them(theirs):
    ours = sw.Layout.from_spec(theirs)
    for rank in ours.mesh.ranks:
        mesh = silent_mesh(theirs.mesh.shape, rank=rank)
        shape, offset = compute_local_shape_and_global_offset(theirs.shape, mesh, theirs.placements)
        assert ours.box(rank)[1] == tuple(shape), (theirs, rank)
        if 0 not in shape:  # where an empty shard begins means nothing
            assert ours.box(rank)[0] == tuple(offset), (theirs, rank)


def test_the_boxes_of_a_spec_are_those_that_torch_gives_its_ranks(seed):
    draw = random.Random(seed)
    for _ in range(100):
        theirs = random_spec(draw)
        assert_boxes_as_torch_has_them(spec(theirs.mesh, theirs.placements, theirs.shape))


def test_ops_and_dtypes_of_a_spec_are_kept():
    mesh = silent_mesh((2, 2), ("a", "b"))
    theirs = spec(mesh, [Partial("avg"), Partial("sum")], (3,), torch.float64)
    ours = sw.Layout.from_spec(theirs)
    assert (ours.dtype, ours.placements, ours.mesh.names) == (
        torch.float64,
        (sw.Partial("avg"), sw.Partial()),
        ("a", "b"),
    )
    assert ours.to_spec(mesh) == theirs


@pytest.mark.parametrize("shape", [(8,), (16, 3)], ids=str)
@pytest.mark.parametrize("order", [(1, 0), (0, 1)], ids=str)
def test_strided_shards_that_stand_for_an_order_are_decoded(shape, order):
    mesh = silent_mesh((2, 4))
    plain = (Shard(0), Shard(0))
    strided = DTensorSpec._convert_shard_order_to_StridedShard((ShardOrderEntry(0, order),), plain, mesh)
    theirs = DTensorSpec(mesh, strided, tensor_meta=meta(shape))
    ours = sw.Layout.from_spec(theirs)
    assert ours == sw.Layout.from_spec(spec(mesh, plain, shape, order=[(0, order)]))
    assert ours.order[0] == order
    assert ours.placements == (sw.Shard(0), sw.Shard(0))
    assert_boxes_as_torch_has_them(theirs)


def test_every_order_of_three_strided_shards_is_decoded():
    mesh = silent_mesh((2, 3, 4))
    for order in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]:
        plain = (Shard(0),) * 3
        strided = DTensorSpec._convert_shard_order_to_StridedShard((ShardOrderEntry(0, order),), plain, mesh)
        theirs = DTensorSpec(mesh, strided, tensor_meta=meta((48,)))
        assert sw.Layout.from_spec(theirs).order == (order,)
        assert_boxes_as_torch_has_them(theirs)


def test_uneven_strided_shards_are_decoded_where_torch_has_boxes():
    for mesh_shape in ((2, 2), (2, 3), (3, 2)):
        mesh = silent_mesh(mesh_shape)
        strided = (_StridedShard(0, split_factor=mesh_shape[1]), Shard(0))
        refused = []
        for length in range(1, 20):
            theirs = DTensorSpec(mesh, strided, tensor_meta=meta((length, 2)))
            try:
                assert sw.Layout.from_spec(theirs).order == ((1, 0), ())
            except ValueError:
                refused.append(length)
            else:
                assert_boxes_as_torch_has_them(theirs)
        assert not refused or mesh_shape == (3, 2), f"{mesh_shape}: {refused}"


def strided_spec(shape, placements, mesh=(2, 2), **options):
    return DTensorSpec(silent_mesh(mesh), placements, tensor_meta=meta(shape), **options)


R = Replicate()

# what is wrong: (the spec, words of the message)
NO_LAYOUT = {
    "uneven strided shard": (
        lambda: strided_spec((7,), (_StridedShard(0, split_factor=2), Shard(0)), mesh=(3, 2)),
        ["_StridedShard", "length 7", "6 parts", "uneven"],
    ),
    "strided shard without an order": (
        lambda: strided_spec((8,), (_StridedShard(0, split_factor=3), Shard(0))),
        ["no order of shards has these split factors"],
    ),
    "strided shard that a view made": (
        lambda: strided_spec((8,), (_StridedShard(0, split_factor=2), R), use_strided_shard_as_shard_order=False),
        ["stands for no order of shards", "not a box"],
    ),
    "masked partial": (lambda: strided_spec((8,), (_MaskPartial(), R)), ["_MaskPartial", "no plain addends"]),
    "norm partial": (lambda: strided_spec((8,), (_NormPartial(2), R)), ["_NormPartial", "no plain addends"]),
    "bitwise partial": (lambda: strided_spec((8,), (Partial("band"), R)), ["band", "not one of sum"]),
    "mixed partials": (lambda: strided_spec((8,), (Partial("max"), Partial("sum"))), ["only sum and avg mix"]),
    "no tensor_meta": (lambda: DTensorSpec(silent_mesh((2, 2)), (Shard(0), Replicate())), ["no tensor_meta"]),
    "no spec at all": (lambda: [1, 2], ["neither a Layout nor a DTensorSpec"]),
}


@pytest.mark.parametrize("what", NO_LAYOUT)
def test_a_spec_that_is_no_layout_is_refused_with_the_reason(what):
    make, words = NO_LAYOUT[what]
    fine = strided_spec((8,), (Shard(0), Replicate()))
    for call in (sw.Layout.from_spec, lambda s: sw.redistribute_cost(s, fine), lambda s: sw.plan(s, fine)):
        with pytest.raises(ValueError) as caught:
            call(make())
        for word in words:
            assert word in str(caught.value)


def test_a_strided_shard_by_itself_asks_for_the_order():
    with pytest.raises(ValueError, match=r"strided.*give Shard\(0\) and the order"):
        sw.Layout((8,), torch.float32, sw.Mesh((2,)), [_StridedShard(0, split_factor=2)])


def test_sizes_per_rank_have_no_spec():
    ragged = sw.Layout((8,), torch.float32, sw.Mesh((2,)), [sw.Shard(0, (3, 5))])
    with pytest.raises(ValueError, match=r"Shard\(0, sizes=\(3, 5\)\).*Layout.*MeshTensor"):
        ragged.to_spec()


def test_a_spec_on_another_mesh_is_refused():
    layout = sw.Layout((8,), torch.float32, sw.Mesh((4,)), [sw.Shard(0)])
    for other in (silent_mesh((2, 2)), silent_mesh((4,), ranks=[3, 2, 1, 0])):
        with pytest.raises(ValueError, match="another mesh"):
            layout.to_spec(other)


def test_specs_are_priced_and_planned_as_their_layouts(seed):
    draw = random.Random(seed)
    mesh = silent_mesh((2, 2))
    for _ in range(40):
        shape = [draw.randrange(1, 20) for _ in range(2)]
        pairs = []
        for partial in (True, False):
            placements = random_placements(draw, 2, 2, partial=partial)
            pairs.append(spec(mesh, placements, shape, order=random_order(draw, placements)))
        a, b = pairs
        ours = [sw.Layout.from_spec(s) for s in pairs]
        assert sw.redistribute_cost(a, b) == sw.redistribute_cost(*ours) == sw.redistribute_cost(a, ours[1])
        assert sw.plan(a, b) == sw.plan(*ours)
        assert sw.draw(a, 80) == sw.draw(ours[0], 80)


def test_a_spec_that_changed_is_read_again():
    a = spec(silent_mesh((4,)), [Shard(0)], (8, 8))
    target = spec(silent_mesh((4,)), [Replicate()], (8, 8))
    small = sw.redistribute_cost(a, target)
    a.tensor_meta, target.tensor_meta = meta((8000, 8000)), meta((8000, 8000))
    assert sw.redistribute_cost(a, target) > 2 * small
