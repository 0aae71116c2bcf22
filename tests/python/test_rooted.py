"""broadcast, gather_v and scatter_v: who gives, who takes, and who has to say what."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support import dense
from tests.support.cases import broadcast_case, gather_case, scatter_case
from tests.support.dense import Draw, assert_same_bits
from tests.support.ranks import ranks
from tests.support.refusals import assert_usable, message_of

both_transports = pytest.mark.parametrize("transport", ["shm", "c10d"])


def use(transport, size):
    if size > 1:
        os.environ["SHARDWAY_TRANSPORT"] = transport


def each_case(draw, size, root, shape, dim, sizes, dtype):
    yield broadcast_case(draw, dense.resized(shape, dim, sum(sizes)), size, root, dtype)
    yield gather_case(draw, shape, dim, sizes, root, dtype)
    yield scatter_case(draw, shape, dim, sizes, root, dtype)


@ranks(1, 2, 3, 4)
@both_transports
def test_every_rank_can_be_the_root_for_every_dtype_dim_and_magnitude(rank, size, transport, seed):
    use(transport, size)
    draw = Draw(seed)
    for unit in (1, 5000):
        sizes = [unit * ((2 * r + 1) % 4) for r in range(size)]
        for dtype in dense.MOVABLE if unit == 1 else (torch.float32, torch.int16):
            for dim in (0, -1):
                for root in range(size):
                    for case in each_case(draw, size, root, (3, 3), dim, sizes, dtype):
                        what = f"unit={unit} {dtype} dim={dim} root={root}"
                        case.check(case.call(case.inputs[rank], rank), rank, what)
                        case.check(case.call(case.inputs[rank], rank, **case.known[rank]), rank, what)
                        handle = case.call(case.inputs[rank], rank, async_op=True)
                        case.check(handle.wait(), rank, f"{what} async")
                        case.check(handle.wait(), rank, f"{what} async, again")


@ranks(1, 2, 3, 4)
@both_transports
def test_ranks_without_rows_contribute_and_receive_nothing(rank, size, transport, seed):
    use(transport, size)
    draw = Draw(seed)
    for empty in range(2**size):
        sizes = [0 if empty >> r & 1 else r + 1 for r in range(size)]
        for root in (0, size - 1):
            for case in each_case(draw, size, root, (2, 3, 2), 1, sizes, torch.float32):
                case.check(case.call(case.inputs[rank], rank), rank, sizes)
                case.check(case.call(case.inputs[rank], rank, **case.known[rank]), rank, f"{sizes} given")


@ranks(1, 2, 3, 4)
def test_broadcast_takes_a_tensor_without_dims(rank, size):
    for root in range(size):
        assert sw.broadcast(torch.tensor(float(rank)), root).item() == root


@ranks(3, 4)
@both_transports
def test_src_and_dst_are_global_ranks_and_group_src_and_group_dst_are_the_groups(rank, size, transport):
    use(transport, size)
    members = [1, size - 1]
    pair = dist.new_group(members)
    if rank not in members:
        return
    x = torch.full((2, 1), float(rank))
    both = torch.tensor([[members[0]]] * 2 + [[members[1]]] * 2, dtype=torch.float32)
    for position, root in enumerate(members):
        is_root = rank == root
        for given in ({"src": root}, {"group_src": position}):
            assert sw.broadcast(x, group=pair, **given).flatten().tolist() == [root, root]
            part = sw.scatter_v(both if is_root else None, group=pair, **given)
            assert_same_bits(part, x)
        for given in ({"dst": root}, {"group_dst": position}):
            gathered, sizes = sw.gather_v(x, group=pair, **given)
            assert sizes == (2, 2)
            assert_same_bits(gathered, both if is_root else both[:0])
    calls = {
        "src": (lambda **root: sw.broadcast(x, group=pair, **root), lambda **root: sw.scatter_v(x, group=pair, **root)),
        "dst": (lambda **root: sw.gather_v(x, group=pair, **root),),
    }
    for name, functions in calls.items():
        for call in functions:
            with pytest.raises(ValueError, match=rf"{name}=0 is not in the group, whose ranks are 1, {size - 1}"):
                call()
            with pytest.raises(ValueError, match=rf"group_{name}=2 is not a rank of a group of 2"):
                call(**{f"group_{name}": 2})
            with pytest.raises(ValueError, match=rf"both {name}=1 and group_{name}=0 are given"):
                call(**{name: 1, f"group_{name}": 0})


@ranks(2, 3)
@both_transports
def test_what_the_others_pass_to_scatter_v_is_not_read(rank, size, transport, seed):
    use(transport, size)
    whole = Draw(seed).tensor((size + 1, 2), torch.float32)
    sizes = [2] + [1] * (size - 1)
    nonsense = (
        (None, None),
        ("no tensor", "no sizes"),
        (torch.ones(3, dtype=torch.int8), (9, -9)),
        (torch.ones(4, 4, requires_grad=True), None),
        (torch.ones(2, 3).to_sparse(), [1]),
    )
    for x, given in nonsense:
        mine = sw.scatter_v(whole, sizes=sizes) if rank == 0 else sw.scatter_v(x, sizes=given)
        assert_same_bits(mine, dense.block(whole, sizes, rank, 0))
        assert not mine.requires_grad


@ranks(2, 3)
@both_transports
def test_scatter_v_without_sizes_splits_as_torch_chunk(rank, size, transport, seed):
    use(transport, size)
    draw = Draw(seed)
    for length in range(2 * size + 2):
        whole = draw.tensor((2, length), torch.float32)
        mine = sw.scatter_v(whole if rank == size - 1 else None, size - 1, 1 if rank else -1)
        assert_same_bits(mine, dense.block(whole, dense.chunk_sizes(length, size), rank, 1))


@ranks(2, 3)
@both_transports
def test_an_input_is_neither_changed_nor_shared(rank, size, transport, seed):
    use(transport, size)
    for length in (3, 30_000):
        x = Draw(seed).tensor((length, 2))
        kept = x.clone()
        for result in (sw.broadcast(x), sw.gather_v(x)[0], sw.scatter_v(x)):
            result.add_(1)
            assert_same_bits(x, kept)


@ranks(2, 3)
@both_transports
def test_only_src_decides_whether_scatter_v_has_a_gradient(rank, size, transport):
    use(transport, size)
    x = torch.ones(size, 2, requires_grad=True)
    part = sw.scatter_v(x if rank == 0 else None)
    assert part.requires_grad
    (part * (rank + 1)).sum().backward()
    if rank == 0:
        assert x.grad.tolist() == [[r + 1.0] * 2 for r in range(size)]


# what is wrong: (the call on rank 1, the call on the others, the message)
REFUSALS = {
    "src": (
        lambda: sw.broadcast(torch.ones(2), 2),
        lambda: sw.broadcast(torch.ones(2)),
        "broadcast: ranks disagree on src: 0 on rank 0, 2 on rank 1",
    ),
    "dst": (
        lambda: sw.gather_v(torch.ones(2), 1),
        lambda: sw.gather_v(torch.ones(2)),
        "gather_v: ranks disagree on dst: 0 on rank 0, 1 on rank 1",
    ),
    "src of a scatter, on a rank that has nothing to give": (
        lambda: sw.scatter_v(None, 1),
        lambda: sw.scatter_v(torch.ones(3)),
        "scatter_v: ranks disagree on src: 0 on rank 0, 1 on rank 1",
    ),
    "dim of a scatter": (
        lambda: sw.scatter_v(None, dim=-1),
        lambda: sw.scatter_v(torch.ones(3, 3)),
        "scatter_v: ranks disagree on dim: 0 on rank 0, -1 on rank 1",
    ),
    "nothing to scatter": (
        lambda: sw.scatter_v(None, 1),
        lambda: sw.scatter_v(None, 1),
        "scatter_v: x is None, but this rank is src (rank 1)",
    ),
    "sizes of a scatter": (
        lambda: sw.scatter_v(torch.ones(3), 1, sizes=(1, 1)),
        lambda: sw.scatter_v(None, 1),
        "scatter_v: sizes has 2 entries for 3 ranks (rank 1)",
    ),
    "shape of a broadcast": (
        lambda: sw.broadcast(torch.ones(2, 3)),
        lambda: sw.broadcast(torch.ones(2, 4)),
        "broadcast: ranks disagree on shape: (2, 4) on rank 0, (2, 3) on rank 1",
    ),
    "dtype of a broadcast": (
        lambda: sw.broadcast(torch.ones(2).half()),
        lambda: sw.broadcast(torch.ones(2)),
        "broadcast: ranks disagree on dtype: float32 on rank 0, float16 on rank 1",
    ),
    "shape of an all_reduce": (
        lambda: sw.all_reduce(torch.ones(2, 3)),
        lambda: sw.all_reduce(torch.ones(3, 3)),
        "all_reduce: ranks disagree on shape: (3, 3) on rank 0, (2, 3) on rank 1",
    ),
    "number of dims of an all_reduce": (
        lambda: sw.all_reduce(torch.tensor(1.0)),
        lambda: sw.all_reduce(torch.ones(1)),
        "all_reduce: ranks disagree on number of dims: 1 on rank 0, 0 on rank 1",
    ),
    "op of an all_reduce": (
        lambda: sw.all_reduce(torch.ones(2), op="max"),
        lambda: sw.all_reduce(torch.ones(2)),
        "all_reduce: ranks disagree on op: sum on rank 0, max on rank 1",
    ),
    "grad of an all_reduce": (
        lambda: sw.all_reduce(torch.ones(2), grad="local"),
        lambda: sw.all_reduce(torch.ones(2)),
        "all_reduce: ranks disagree on grad: sum on rank 0, local on rank 1",
    ),
    "another op": (
        lambda: sw.broadcast(torch.ones(2)),
        lambda: sw.all_reduce(torch.ones(2)),
        "ranks called different collectives: all_reduce on rank 0, broadcast on rank 1",
    ),
    "no such src": (
        lambda: sw.broadcast(torch.ones(2), 3),
        lambda: sw.broadcast(torch.ones(2)),
        "broadcast: src=3 is not in the group, whose ranks are 0, 1, 2 (rank 1)",
    ),
    "no integer for dst": (
        lambda: sw.gather_v(torch.ones(2), 0.5),
        lambda: sw.gather_v(torch.ones(2)),
        "gather_v: dst=0.5 is not a 64-bit integer (rank 1)",
    ),
    "no tensor": (
        lambda: sw.all_reduce([1.0]),
        lambda: sw.all_reduce(torch.ones(1)),
        "all_reduce: x is a list, not a tensor (rank 1)",
    ),
    "a tensor without data": (
        lambda: sw.broadcast(torch.ones(2, device="meta")),
        lambda: sw.broadcast(torch.ones(2)),
        "broadcast: x is on the meta device and holds no data (rank 1)",
    ),
    "out of another shape": (
        lambda: sw.all_reduce(torch.ones(2, 3), out=torch.empty(3, 3)),
        lambda: sw.all_reduce(torch.ones(2, 3)),
        "all_reduce: out has shape [3, 3], but must have x's extent 2 along dim 0 (rank 1)",
    ),
    "a dim that a gather does not have": (
        lambda: sw.gather_v(torch.ones(2), dim=1),
        lambda: sw.gather_v(torch.ones(2)),
        "gather_v: dim=1 is out of range for a 1-d tensor (rank 1)",
    ),
}


@ranks(3)
@both_transports
def test_a_mistake_or_a_disagreement_is_the_same_error_on_every_rank_and_the_group_lives_on(rank, size, transport):
    use(transport, size)
    for name, (wrong, right, message) in REFUSALS.items():
        assert message_of(wrong if rank == 1 else right) == message, name
        assert_usable(rank, size)


@ranks(3)
@both_transports
def test_a_mistake_in_an_async_call_is_told_by_the_time_of_wait(rank, size, transport):
    use(transport, size)
    for call in (
        lambda: sw.all_reduce(torch.ones(2 + (rank == 1)), async_op=True).wait(),
        lambda: sw.broadcast(torch.ones(2 + (rank == 1)), async_op=True).wait(),
        lambda: sw.gather_v(torch.ones(2), int(rank == 1), async_op=True).wait(),
        lambda: sw.scatter_v(torch.ones(2), int(rank == 1), async_op=True).wait(),
    ):
        assert "ranks disagree on" in message_of(call)
        assert_usable(rank, size)


def test_without_a_group_the_input_comes_back():
    x = torch.ones(3, 2, requires_grad=True)
    assert sw.broadcast(x) is x and sw.scatter_v(x) is x
    gathered, sizes = sw.gather_v(x, dim=1)
    assert gathered is x and sizes == (2,)
    for call in (lambda: sw.broadcast(x, 1), lambda: sw.gather_v(x, 1), lambda: sw.scatter_v(x, 1)):
        with pytest.raises(ValueError, match="=1 is not in the group, whose ranks are 0"):
            call()
    with pytest.raises(ValueError, match="scatter_v: x is None"):
        sw.scatter_v(None)
