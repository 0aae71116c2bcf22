"""Rounds of plain calls: what they give equals what one process computes from the seed."""

from __future__ import annotations

import functools
import random
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

import shardway as sw
from tests.stress.groups import Group
from tests.stress.world import World
from tests.support import cases, dense
from tests.support.cases import Case
from tests.support.dense import Draw, assert_close, assert_same_bits, memory_forms
from tests.support.mesh_reference import Layouts, check, held, part

MOST = (3, 40, 40, 2_000, 2_000, 30_000)  # rows
REDUCTIONS = ("sum", "sum", "avg", "min", "max", "product")


def one_of(draw: Draw, choices: Any) -> Any:
    return choices[draw.integer(0, len(choices))]


def any_case(draw: Draw, size: int, dtypes: Any = dense.MOVABLE, reductions: Any = REDUCTIONS) -> Case:
    """A call of any collective among `size` ranks."""
    shape = [draw.integer(1, 6) for _ in range(draw.integer(1, 4))]
    dim, most, root = draw.integer(0, len(shape)), one_of(draw, MOST), draw.integer(0, size)
    dtype = one_of(draw, dtypes)
    summable = dtype if dtype not in dense.FLOAT8 and dtype != torch.bool else torch.float32
    length = dense.resized(shape, dim, draw.integer(0, most * size))
    kind = draw.integer(0, 8)
    if kind == 1:
        op = one_of(draw, reductions if summable in dense.FLOATS else ("sum",))
        return cases.reduce_scatter_case(draw, shape, dim, draw.sizes(size, most), summable, op)
    if kind == 2:
        rows = draw.integer(0, most * size)
        return cases.reduce_scatter_case(draw, shape, dim, None, summable, ranks=size, length=rows)
    if kind == 3:
        op = one_of(draw, reductions if summable in dense.FLOATS else ("sum",))
        return cases.all_reduce_case(draw, length, size, summable, op)
    if kind == 4:
        return cases.all_to_all_case(draw, shape, dim, [draw.sizes(size, most) for _ in range(size)], dtype)
    if kind == 5:
        return cases.broadcast_case(draw, length, size, root, dtype)
    if kind == 6:
        return cases.gather_case(draw, shape, dim, draw.sizes(size, most), root, dtype)
    if kind == 7:
        return cases.scatter_case(draw, shape, dim, draw.sizes(size, most), root, dtype)
    return cases.all_gather_case(draw, shape, dim, draw.sizes(size, most), dtype)


def laid(x: Tensor, choice: int) -> Tensor:
    """The same values in shared memory, or in one of the forms that a tensor has."""
    if choice % 2:
        return sw.empty(*x.shape, dtype=x.dtype).copy_(x)
    forms = [form for _, form in memory_forms(x)]
    return forms[choice % len(forms)]


def run_case(world: World, draw: Draw, group: Group, case: Case) -> None:
    """On every member of the group."""
    place = group.place(world.rank)
    choices = [draw.integer(0, 1000) for _ in case.inputs]
    knows, waits = draw.integer(0, 2), draw.integer(0, 3)
    if place is None:
        return
    shapes = [tuple(x.shape) for x in case.inputs]
    world.doing(f"{case.op} of {shapes} {case.inputs[0].dtype} on {group.backend} {group.members}")
    world.called(case.op, case.inputs[place].nbytes)
    options = case.known[place] if knows else {}
    call = functools.partial(case.call, laid(case.inputs[place], choices[place]), place, group=group.pg, **options)
    result = call() if waits else call(async_op=True).wait()
    world.expect(lambda: case.check(result, place), f"{shapes} on {group.backend} {group.members}:")


def ops(world: World, draw: Draw) -> None:
    group = world.groups.any_of(draw)
    for _ in range(draw.integer(1, 5)):
        run_case(world, draw, group, any_case(draw, group.size))


def gradients(world: World, draw: Draw) -> None:
    group = world.groups.any_of(draw)
    place = group.place(world.rank)
    case = any_case(draw, group.size, (torch.float64,), ("sum",))
    leaves = [x.clone().requires_grad_() for x in case.inputs]
    outputs = case.dense(leaves)
    weights = [draw.tensor(y.shape) for y in outputs]
    torch.stack([(y * w).sum() for y, w in zip(outputs, weights, strict=True)]).sum().backward()
    if place is None:
        return
    world.doing(f"{case.op} and its backward on {group.backend} {group.members}")
    world.called(f"{case.op} and backward", case.inputs[place].nbytes)
    x = case.inputs[place].clone().requires_grad_()
    y = case.tensor_of(case.call(x, place, group=group.pg))
    (y * weights[place]).sum().backward()
    wanted = leaves[place].grad
    found = x.grad

    def compare() -> None:
        assert_close(y.detach(), case.outputs[place], case.op)
        assert found is not None and wanted is not None
        assert_close(found, wanted, f"gradient of {case.op}")

    world.expect(compare)


def lists(world: World, draw: Draw) -> None:
    group = world.groups.any_of(draw)
    place, size = group.place(world.rank), group.size
    count, most = draw.integer(1, 7), one_of(draw, (4, 300, 20_000))
    gathers = draw.integer(0, 2)
    dtypes = [one_of(draw, dense.MOVABLE if gathers else dense.FLOATS) for _ in range(count)]
    sizes = [draw.sizes(size, most) for _ in range(count)]
    is_async = draw.integer(0, 3) == 0
    if gathers:
        inputs = [draw.parts((2, 1), -1, cut, dtype) for cut, dtype in zip(sizes, dtypes, strict=True)]
    else:
        inputs = [[draw.tensor((2, sum(cut)), t) for _ in range(size)] for cut, t in zip(sizes, dtypes, strict=True)]
    if place is None:
        return
    mine = [of_one[place] for of_one in inputs]
    world.doing(f"a list of {count}, sizes {sizes}, on {group.backend} {group.members}")
    world.called("list", sum(x.nbytes for x in mine))
    if gathers:
        given = sizes if draw.integer(0, 2) else None
        found = sw.all_gather_v(mine, -1, sizes=given, group=group.pg, async_op=is_async)
        tensors = (found.wait() if is_async else found)[0]
        wanted = [dense.gathered(of_one, -1) for of_one in inputs]
    else:
        found = sw.reduce_scatter_v(mine, sizes, -1, group=group.pg, async_op=is_async)
        tensors = found.wait() if is_async else found
        wanted = [dense.block(dense.reduced(of), cut, place, -1) for of, cut in zip(inputs, sizes, strict=True)]

    def compare() -> None:
        for got, want in zip(tensors, wanted, strict=True):
            assert_same_bits(got, want)

    world.expect(compare, f"list of {sizes}")


def mesh(world: World, draw: Draw) -> None:
    layouts = Layouts(draw.integer(0, 2**31), world.size)
    longest = one_of(draw, (7, 7, 60))
    pairs = [layouts.pair(longest=longest) for _ in range(draw.integer(1, 4))]
    tensors = [sw.MeshTensor(pair.input(world.rank), pair.before) for pair in pairs]
    how = draw.integer(0, 4)
    world.doing(pairs)
    for _ in range(1 if how == 0 else len(pairs)):
        world.called("redistribute list" if how == 0 else "redistribute")
    if how == 0:
        results = sw.redistribute(tensors, [pair.after for pair in pairs])
    elif how == 1:
        handles = [sw.redistribute(t, pair.after, async_op=True) for t, pair in zip(tensors, pairs, strict=True)]
        results = [handle.wait() for handle in reversed(handles)][::-1]
    else:
        results = [sw.redistribute(t, pair.after) for t, pair in zip(tensors, pairs, strict=True)]
    for pair, result in zip(pairs, results, strict=True):
        world.expect(lambda pair=pair, result=result: check(pair, result, world.rank))  # type: ignore[misc]


def dtensor(world: World, draw: Draw) -> None:
    dice = random.Random(draw.integer(0, 2**31))
    device_mesh = dice.choice(world.meshes)
    shape = [dice.choice((1, 3, 5, 8, 130)) for _ in range(2)]
    dtype = dice.choice((torch.float32, torch.float64, torch.bfloat16, torch.int64))
    before: list[Placement] = [dice.choice((Shard(0), Shard(1), Replicate(), Partial())) for _ in device_mesh.shape]
    after = [p if p.is_partial() and dice.random() < 0.2 else _without_addends(dice) for p in before]
    whole = torch.randint(0, 50, shape, generator=draw.generator).to(dtype)
    world.doing(f"DTensor of {shape} {dtype}: {before} to {after}")
    world.called("DTensor.redistribute")
    source = DTensor.from_local(
        part(whole, _held(shape, dtype, device_mesh, before, world.rank)),
        device_mesh,
        before,
        run_check=False,
        shape=torch.Size(shape),
        stride=whole.stride(),
    )
    with sw.use_for_dtensor():
        result = source.redistribute(device_mesh, after)
    factor = 1
    for dim, (old, new) in enumerate(zip(before, after, strict=True)):
        factor *= device_mesh.size(dim) if old.is_partial() and not new.is_partial() else 1
    wanted = part(whole * factor, _held(shape, dtype, device_mesh, after, world.rank))
    world.expect(lambda: assert_same_bits(result.to_local(), wanted, f"{shape} {before} to {after}"))


def _without_addends(dice: random.Random) -> Placement:
    return dice.choice((Shard(0), Shard(1), Replicate()))


def _held(shape: list[int], dtype: torch.dtype, mesh: Any, placements: list[Placement], rank: int) -> list[list[int]]:
    ours = [sw.Shard(p.dim) if isinstance(p, Shard) else sw.Replicate() for p in placements]
    indices = held(sw.Layout(shape, dtype, sw.Mesh(tuple(mesh.shape)), ours), rank)
    assert indices is not None
    return indices


BACKEND_CALLS = ("all_reduce", "all_gather", "into_tensor", "reduce_scatter", "all_to_all", "broadcast", "objects")


def backend(world: World, draw: Draw) -> None:
    group = world.groups.any_of(draw, "shardway")
    place, size, pg = group.place(world.rank), group.size, group.pg
    for _ in range(draw.integer(1, 4)):
        name, count = one_of(draw, BACKEND_CALLS), one_of(draw, (1, 17, 3_000, 50_000))
        dtype = one_of(draw, (torch.float32, torch.float64, torch.int32, torch.bfloat16))
        xs = [draw.tensor((count * size,), dtype) for _ in range(size)]
        root = draw.integer(0, size)
        if place is None:
            continue
        x = xs[place].clone()
        world.doing(f"dist {name} of {count} {dtype} on {group.members}")
        world.called(f"dist {name}", x.nbytes)
        if name == "all_reduce":
            dist.all_reduce(x, group=pg)
            wanted = dense.reduced(xs)
        elif name == "all_gather":
            outputs = [torch.empty_like(x) for _ in range(size)]
            dist.all_gather(outputs, x, group=pg)
            x, wanted = torch.cat(outputs), torch.cat(xs)
        elif name == "into_tensor":
            whole = torch.empty(count * size * size, dtype=dtype)
            dist.all_gather_into_tensor(whole, x, group=pg)
            x, wanted = whole, torch.cat(xs)
        elif name == "reduce_scatter":
            mine = torch.empty(count, dtype=dtype)
            dist.reduce_scatter_tensor(mine, x, group=pg)
            x, wanted = mine, dense.reduced(xs).chunk(size)[place]
        elif name == "all_to_all":
            found = torch.empty_like(x)
            dist.all_to_all_single(found, x, group=pg)
            x, wanted = found, torch.cat([other.chunk(size)[place] for other in xs])
        elif name == "broadcast":
            dist.broadcast(x, group.members[root], group=pg)
            wanted = xs[root]
        else:
            words: list[Any] = [None] * size
            dist.all_gather_object(words, (place, "word" * (count % 50)), group=pg)
            x, wanted = torch.tensor([word[0] for word in words]), torch.arange(size)
        world.expect(functools.partial(assert_same_bits, x, wanted, f"dist {name} of {count} on {group.members}"))


def messages(world: World, draw: Draw) -> None:
    """Every rank sends some messages to its right, in order, by tags, at once or not."""
    group = world.groups.any_of(draw, "shardway")
    place, size, pg = group.place(world.rank), group.size, group.pg
    counts = [one_of(draw, (0, 1, 500, 40_000)) for _ in range(draw.integer(1, 5))]
    sent = [[draw.tensor((count,), torch.float32) for count in counts] for _ in range(size)]
    how = draw.integer(0, 3)
    if place is None:
        return
    left, right = group.members[place - 1], group.members[(place + 1) % size]
    world.doing(f"messages of {counts} from {left} and to {right}")
    world.called("messages", sum(x.nbytes for x in sent[place]))
    found = [torch.empty(count) for count in counts]
    if how == 0:
        works = [dist.isend(x, right, group=pg) for x in sent[place]]
        for y in found:
            dist.recv(y, left, group=pg)
        for work in works:
            work.wait()
    elif how == 1:  # tags in the opposite order
        works = [dist.irecv(y, left, group=pg, tag=i) for i, y in enumerate(found)]
        works += [dist.isend(x, right, group=pg, tag=i) for i, x in reversed(list(enumerate(sent[place])))]
        for work in works:
            work.wait()
    else:
        batch = [dist.P2POp(dist.isend, x, right, pg) for x in sent[place]]
        batch += [dist.P2POp(dist.irecv, y, left, pg) for y in found]
        for work in dist.batch_isend_irecv(batch):
            work.wait()

    def compare() -> None:
        for got, want in zip(found, sent[place - 1], strict=True):
            assert_same_bits(got, want)

    world.expect(compare, f"messages of {counts}")
