"""The modules, split_by_rank, gather_sizes and the package itself."""

from __future__ import annotations

import copy
import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn

import shardway as sw
from tests.support import dense
from tests.support.cases import all_gather_case
from tests.support.dense import Draw
from tests.support.programs import run_program
from tests.support.ranks import ranks


@ranks(1, 2, 3, 4)
def test_the_module_gathers_along_its_dim_in_its_grad_mode(rank, size, seed):
    draw = Draw(seed)
    sizes = list(range(size))
    for dim in (0, 1, -1):
        case = all_gather_case(draw, (2, 2, 3), dim, sizes, torch.float64)
        upstream = [draw.tensor(case.outputs[0].shape) for _ in range(size)]
        mine = [dense.block(y, sizes, rank, dim) for y in upstream]
        wanted = {"sum": sum(mine), "mean": sum(mine) / size, "local": mine[rank]}
        for grad, want in wanted.items():
            gather = sw.AllGather(dim, grad=grad)
            for given in ((), (sizes,), (torch.tensor(sizes),)):
                x = case.inputs[rank].clone().requires_grad_()
                gathered, found = gather(x, *given)
                case.check((gathered.detach(), found), rank, f"AllGather {grad}")
                gathered.backward(upstream[rank])
                dense.assert_close(x.grad, want, grad)


@ranks(3)
def test_the_module_takes_dim_0_and_the_true_gradient_unless_told(rank, size):
    x = torch.full((rank + 1, 2), float(rank), requires_grad=True)
    gathered, sizes = sw.AllGather()(x)
    assert sizes == (1, 2, 3) and gathered.shape == (6, 2)
    (gathered * (rank + 1)).sum().backward()
    assert torch.equal(x.grad, torch.full((rank + 1, 2), 1.0 + 2.0 + 3.0))


@ranks(3)
def test_the_module_spans_the_group_that_it_was_given(rank, size):
    pair = dist.new_group([0, 2])
    if rank == 1:
        return
    gathered, sizes = sw.AllGather(group=pair)(torch.full((1 + rank, 1), float(rank)))
    assert sizes == (1, 3)
    assert gathered.flatten().tolist() == [0.0, 2.0, 2.0, 2.0]


def test_the_module_is_an_ordinary_module_without_parameters():
    gather = sw.AllGather(1, grad="mean")
    assert isinstance(gather, nn.Module)
    assert not list(gather.parameters()) and not gather.state_dict()
    x = torch.ones(2, 3)
    for module in (gather, copy.deepcopy(gather), nn.ModuleDict({"gather": gather})["gather"]):
        assert module(x)[0] is x and module(x)[1] == (3,)


def test_the_module_refuses_an_unknown_grad_mode():
    with pytest.raises(ValueError, match="average"):
        sw.AllGather(grad="average")(torch.ones(2, 2))


@ranks(1, 2, 3, 4)
def test_the_other_modules_do_what_the_functions_do(rank, size, seed):
    draw = Draw(seed)
    sizes = [r + 1 for r in range(size)]
    whole = draw.tensor((2, sum(sizes)))
    x = dense.block(whole, sizes, rank, 1).contiguous()
    root = size - 1
    for given in ((), (sizes,)):
        gathered, found = sw.Gather(root, 1)(x, *given)
        dense.assert_same_bits(gathered, whole if rank == root else whole[:, :0])
        assert found == tuple(sizes)
    dense.assert_same_bits(sw.Scatter(root, -1)(whole if rank == root else None, sizes), x)
    dense.assert_same_bits(sw.ReduceScatter(1, op="max")(whole, sizes), x)
    dense.assert_close(sw.AllReduce(op="avg")(whole * (rank + 1)), whole * (size + 1) / 2)
    assert sw.Broadcast(root)(torch.tensor([rank])).item() == root
    to_self = [x.shape[1] if r == rank else 0 for r in range(size)]
    for given in ((), (to_self,)):
        swapped, arrived = sw.AllToAll(1)(x, to_self, *given)
        dense.assert_same_bits(swapped, x)
        assert arrived == tuple(to_self)


def test_the_other_modules_are_ordinary_modules_without_parameters():
    x = torch.ones(2, 3)
    for module in (sw.AllReduce(), sw.Broadcast(), sw.Gather(dim=1), sw.Scatter(), sw.ReduceScatter(), sw.AllToAll(1)):
        assert isinstance(module, nn.Module) and not list(module.parameters())
        result = copy.deepcopy(module)(x, (3,)) if isinstance(module, sw.AllToAll) else copy.deepcopy(module)(x)
        assert (result[0] if isinstance(result, tuple) else result) is x
        assert "=" in module.extra_repr() and module.extra_repr() in repr(module)


@ranks(1, 2, 3, 4)
def test_gather_sizes_gives_every_ranks_size_along_the_dim(rank, size):
    shapes = [(r, 2, 5 - r) for r in range(size)]  # the other dims may differ
    x = torch.zeros(shapes[rank])
    for dim in range(-3, 3):
        sizes = sw.gather_sizes(x, dim)
        assert sizes == tuple(shape[dim] for shape in shapes)
        assert type(sizes) is tuple and all(type(n) is int for n in sizes)
    assert sw.gather_sizes(x) == tuple(range(size))


@ranks(1, 2, 3, 4)
def test_split_by_rank_gives_this_ranks_part_and_all_sizes(rank, size, seed):
    draw = Draw(seed)
    parts = draw.parts((1, 2), 0, list(range(size)))
    for given in (tuple(parts), list(parts)):
        part, sizes = sw.split_by_rank(given)
        dense.assert_same_bits(part, parts[rank])
        assert sizes == tuple(range(size))
    stacked = draw.tensor((size, 5, 2))
    part, sizes = sw.split_by_rank(stacked)
    dense.assert_same_bits(part, stacked[rank])
    assert sizes == (5,) * size


@ranks(2, 3)
def test_split_by_rank_undoes_a_gather_with_gradients(rank, size, seed):
    draw = Draw(seed)
    sizes = [r + 1 for r in range(size)]
    x = draw.parts((1, 2), 0, sizes)[rank].requires_grad_()
    gathered, found = sw.all_gather_v(x, grad="local")
    part, again = sw.split_by_rank(gathered.split(found))
    assert again == tuple(sizes)
    dense.assert_same_bits(part, x)
    (part * 2).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 2.0))


@ranks(3)
def test_split_by_rank_spans_the_group_that_it_was_given(rank, size):
    pair = dist.new_group([0, 2])
    if rank == 1:
        return
    part, sizes = sw.split_by_rank((torch.zeros(4, 1), torch.ones(5, 1)), group=pair)
    assert sizes == (4, 5)
    assert torch.equal(part, torch.zeros(4, 1) if rank == 0 else torch.ones(5, 1))


@ranks(3)
def test_split_by_rank_refuses_too_few_parts_and_what_is_no_tensor(rank, size):
    for parts in ((torch.ones(2),), torch.ones(2, 4)):
        with pytest.raises(ValueError, match=rf"split_by_rank.*rank {rank}"):
            sw.split_by_rank(parts)
    with pytest.raises((ValueError, TypeError)):
        sw.split_by_rank(3)


IMPORT_UNDER_ANOTHER_TORCH = """
import torch
torch.__version__ = type(torch.__version__)("9.8.7")
try:
    import shardway
except ImportError as error:
    print(error)
"""


def test_another_torch_than_the_one_built_for_is_an_import_error_in_one_sentence():
    ran = run_program([sys.executable, "-c", IMPORT_UNDER_ANOTHER_TORCH], timeout_s=60)
    assert ran.returncode == 0, ran.stderr
    message = ran.stdout.strip()
    assert "9.8.7" in message, ran
    assert torch.__version__.split("+")[0] in message
    assert len(message.splitlines()) == 1
