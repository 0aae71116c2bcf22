"""The replaced files, point by point: one test per line 1 to 11 of the mission, through the drop-in modules.

Each result is compared with a reference in one process and with the algorithm that those files contain.
"""

from __future__ import annotations

import inspect
import os

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Function

from shardway.compat import mirasol, musiclm, spear_tts, st_moe
from tests.support import dense
from tests.support.dense import Draw
from tests.support.pad_gather_mask import (
    AllReduceGather,
    LocalSliceGather,
    gather_equal,
    pad_gather_mask,
    pad_gather_mask_unless_equal,
)
from tests.support.pad_gather_mask import pad_dim_to as reference_pad_dim_to
from tests.support.ranks import ranks

MODULES = (mirasol, musiclm, st_moe, spear_tts)


def sizes_for(size):
    return [2, 0, 3, 1][:size] if size > 1 else [2]


def gathers(dim):
    """Every way in which the four files gather with gradients: name, call (x, sizes), and the old algorithm for it."""
    return {
        "mirasol.all_gather": (lambda x, sizes: mirasol.all_gather(x, dim, sizes), LocalSliceGather),
        "mirasol.AllGather.apply": (lambda x, sizes: mirasol.AllGather.apply(x, dim, sizes), LocalSliceGather),
        "spear_tts.all_gather": (lambda x, sizes: spear_tts.all_gather(x, dim, sizes), LocalSliceGather),
        "spear_tts.AllGather.apply": (lambda x, sizes: spear_tts.AllGather.apply(x, dim, sizes), LocalSliceGather),
        "st_moe.AllGather": (lambda x, sizes: st_moe.AllGather(dim=dim)(x, sizes), LocalSliceGather),
        "st_moe.AllGatherFunction": (lambda x, sizes: st_moe.AllGatherFunction.apply(x, dim, sizes), LocalSliceGather),
        "musiclm.AllGather": (lambda x, sizes: musiclm.AllGather(dim)(x, sizes), LocalSliceGather),
        "musiclm.AllGather summed": (
            lambda x, sizes: musiclm.AllGather(dim, all_reduce_grads=True)(x, sizes=sizes),
            AllReduceGather,
        ),
        "musiclm.AllGatherFunction summed": (
            lambda x, sizes: musiclm.AllGatherFunction.apply(x, dim, sizes, True),
            AllReduceGather,
        ),
    }


def check_gather(result, parts, dim, old, what):
    """Concatenation in rank order, and the sizes as a LongTensor on the input's device; as the old algorithm has it."""
    gathered, sizes = result
    dense.assert_same_bits(gathered, torch.cat(parts, dim), what)
    dense.assert_same_bits(sizes, torch.tensor([part.shape[dim] for part in parts]), what)
    assert sizes.device == parts[0].device
    dense.assert_same_bits(gathered, old[0], what)
    dense.assert_same_bits(sizes, old[1], what)


@ranks(2, 3, 4)
def test_line_01_gather_along_any_dim_tensors_that_differ_in_size_there(rank, size, seed):
    draw = Draw(seed)
    for dim in (0, 1, 2, -1, -2, -3):
        parts = draw.parts((2, 3, 2), dim, sizes_for(size), torch.float32)
        old = pad_gather_mask(parts[rank], dim)
        for module in MODULES:
            check_gather(module.all_gather_variable_dim(parts[rank], dim), parts, dim, old, module.__name__)
            check_gather(module.all_gather_variable_dim(t=parts[rank], dim=dim), parts, dim, old, module.__name__)
        for name, (gather, _) in gathers(dim).items():
            check_gather(gather(parts[rank], None), parts, dim, old, f"{name} dim={dim}")
    parts = draw.parts((2, 3), 0, sizes_for(size))
    old = pad_gather_mask(parts[rank])
    for module in MODULES:
        check_gather(module.all_gather_variable_dim(parts[rank]), parts, 0, old, "dim 0 unless told")
    check_gather(st_moe.AllGather()(parts[rank]), parts, 0, old, "dim 0 unless told")


@ranks(2, 3)
def test_line_02_sizes_are_found_by_an_exchange_or_given_and_then_there_is_none(rank, size, seed):
    os.environ["SHARDWAY_TRANSPORT"] = "c10d"  # messages can be counted
    draw = Draw(seed)
    parts = draw.parts((2, 3), 0, sizes_for(size))
    given = torch.tensor(sizes_for(size))
    old = pad_gather_mask(parts[rank], 0, given)
    for module in MODULES:
        check_gather(module.all_gather_variable_dim(parts[rank], 0, given), parts, 0, old, module.__name__)
        check_gather(module.all_gather_variable_dim(parts[rank], sizes=given), parts, 0, old, module.__name__)
    for name, (gather, _) in gathers(0).items():
        check_gather(gather(parts[rank], given), parts, 0, old, f"{name} sizes given")

    large = draw.parts(
        (2, 40_000), 0, [size + 1 - r for r in range(size)], torch.float32
    )  # more than fits beside the sizes
    large_sizes = torch.tensor([part.shape[0] for part in large])
    for name, (gather, _) in gathers(0).items():
        asked, told = (messages_of(lambda: gather(large[rank], sizes)) for sizes in (None, large_sizes))  # noqa: B023
        assert 0 < told < asked, f"{name}: {told} messages with sizes given, {asked} without"


def messages_of(call):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return sum(event.name.startswith("gloo:") for event in profile.events())


@ranks(2, 3, 4)
def test_line_03_the_result_is_the_concatenation_without_padding_and_sizes_on_the_inputs_device(rank, size, seed):
    draw = Draw(seed)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8):
        parts = draw.parts((2, 3), 0, sizes_for(size), dtype)
        old = pad_gather_mask(parts[rank])
        for name, (gather, _) in gathers(0).items():
            gathered, sizes = gather(parts[rank], None)
            check_gather((gathered, sizes), parts, 0, old, f"{name} {dtype}")
            assert gathered.shape[0] == sum(sizes_for(size))
            assert sizes.dtype == torch.long and sizes.device == parts[rank].device and sizes.shape == (size,)


@ranks(2, 3, 4)
def test_line_04_equal_sizes_give_the_same_result_on_the_fast_path(rank, size, seed):
    draw = Draw(seed)
    for rows in (1, 5, 3000):
        for dim in (0, 1):
            parts = draw.parts((2, 2), dim, [rows] * size, torch.float32)
            old = pad_gather_mask_unless_equal(parts[rank], dim)
            check_gather(pad_gather_mask(parts[rank], dim), parts, dim, old, "the old algorithm with itself")
            for name, (gather, _) in gathers(dim).items():
                check_gather(gather(parts[rank], None), parts, dim, old, name)
                check_gather(gather(parts[rank], old[1]), parts, dim, old, f"{name} sizes given")


@ranks(2, 3, 4)
def test_line_05_backward_is_this_ranks_slice_or_that_of_the_summed_gradient(rank, size, seed):
    draw = Draw(seed)
    for dim in (0, -1):
        sizes = sizes_for(size)
        parts = draw.parts((2, 2, 3), dim, sizes)
        upstream = [draw.tensor(torch.cat(parts, dim).shape) for _ in range(size)]
        for name, (gather, old) in gathers(dim).items():
            for given in (None, torch.tensor(sizes)):
                x = parts[rank].clone().requires_grad_()
                y = parts[rank].clone().requires_grad_()
                gather(x, given)[0].backward(upstream[rank])
                old.apply(y, dim, given)[0].backward(upstream[rank].clone())
                whole = sum(upstream) if old is AllReduceGather else upstream[rank]
                dense.assert_close(x.grad, dense.block(whole, sizes, rank, dim), f"{name} dim={dim}")
                dense.assert_close(x.grad, y.grad, f"{name} dim={dim}, the old algorithm")
        for module in MODULES:  # no gradient passes through the function under them
            x = parts[rank].clone().requires_grad_()
            assert not module.all_gather_variable_dim(x, dim)[0].requires_grad


def not_distributed():
    x = torch.ones(3, 2, requires_grad=True)
    weight = torch.arange(6.0).view(3, 2)
    for gather in (
        lambda: spear_tts.all_gather(x, 0, None),
        lambda: spear_tts.AllGather.apply(x, 0, None),
        lambda: musiclm.AllGather(0)(x),
        lambda: musiclm.AllGather(0, all_reduce_grads=True)(x),
    ):
        y, sizes = gather()
        assert sizes is None
        assert torch.equal(y, x)
        (grad,) = torch.autograd.grad(y, x, weight)
        assert torch.equal(grad, weight)
    for call in (mirasol.all_gather, mirasol.AllGather.apply):
        with pytest.raises(AssertionError):
            call(x, 0, None)


def act_as_if_alone():
    """What the files would fail at, for want of a group, without saying so."""
    x = torch.ones(3, 2, requires_grad=True)
    for module in MODULES:
        y, sizes = module.all_gather_variable_dim(x, 1)
        assert torch.equal(y, x) and sizes.tolist() == [2]
    y, sizes = st_moe.AllGather()(x)
    assert torch.equal(y, x) and sizes.tolist() == [3]
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], torch.ones(3, 2))
    assert st_moe.gather_sizes(x, dim=0).tolist() == [3]
    for module in (musiclm, st_moe):
        (only,) = module.all_gather_same_dim(x)
        assert torch.equal(only, x)
    part, sizes = st_moe.split_by_rank((x,))
    assert torch.equal(part, x) and sizes.tolist() == [3]


@ranks(1)
def test_line_06_one_rank_gives_x_and_none_and_mirasol_raises(rank, size):
    not_distributed()
    act_as_if_alone()


def test_line_06_without_a_group_gives_x_and_none_and_mirasol_raises():
    not_distributed()
    act_as_if_alone()


def test_line_07_the_names_and_arguments_are_those_of_each_file():
    for module in (mirasol, spear_tts):
        assert issubclass(module.AllGather, Function)
        assert module.all_gather == module.AllGather.apply
    for module in (musiclm, st_moe):
        assert issubclass(module.AllGather, nn.Module)
        assert issubclass(module.AllGatherFunction, Function)
        assert list(inspect.signature(module.AllGather.forward).parameters) == ["self", "x", "sizes"]
    init = inspect.signature(musiclm.AllGather)
    assert init.parameters["dim"].default is inspect.Parameter.empty
    assert init.parameters["all_reduce_grads"].kind is inspect.Parameter.KEYWORD_ONLY
    assert init.parameters["all_reduce_grads"].default is False
    dim = inspect.signature(st_moe.AllGather).parameters["dim"]
    assert dim.kind is inspect.Parameter.KEYWORD_ONLY and dim.default == 0
    with pytest.raises(TypeError):
        st_moe.AllGather(0)
    with pytest.raises(TypeError):
        musiclm.AllGather(0, True)
    for module in MODULES:
        parameters = inspect.signature(module.all_gather_variable_dim).parameters
        assert [(p.name, p.default) for p in parameters.values()][1:] == [("dim", 0), ("sizes", None)]
        assert next(iter(parameters)) == "t"
    defined = {
        mirasol: "get_is_distributed pad_dim_to all_gather_variable_dim AllGather all_gather",
        musiclm: "all_gather_same_dim all_gather_variable_dim AllGatherFunction AllGather",
        st_moe: "exists default divisible_by pad_dim_to all_gather_same_dim gather_sizes has_only_one_value"
        " all_gather_variable_dim AllGatherFunction AllGather split_by_rank",
        spear_tts: "all_gather_variable_dim AllGather all_gather",
    }
    for module, names in defined.items():
        assert set(names.split()) <= set(module.__all__)
        assert all(callable(getattr(module, name)) for name in names.split())


@ranks(2, 3)
def test_line_07_the_modules_keep_their_attributes_and_take_sizes_by_name(rank, size, seed):
    parts = Draw(seed).parts((2, 3), 0, sizes_for(size))
    old = pad_gather_mask(parts[rank])
    gather = musiclm.AllGather(0, all_reduce_grads=True)
    assert (gather.dim, gather.all_reduce_grads, gather.is_distributed) == (0, True, True)
    assert st_moe.AllGather(dim=1).dim == 1
    for module in (gather, st_moe.AllGather(dim=0)):
        check_gather(module(parts[rank], sizes=torch.tensor(sizes_for(size))), parts, 0, old, module)
        check_gather(module(parts[rank]), parts, 0, old, module)


@ranks(1, 2, 3)
def test_line_08_same_dim_gives_a_list_and_the_small_functions_do_what_they_say(rank, size, seed):
    draw = Draw(seed)
    for shape in ((), (3,), (2, 3), (0, 2), (200, 300)):
        for dtype in (torch.float32, torch.int64):
            tensors = [draw.tensor(shape, dtype) for _ in range(size)]
            for module in (musiclm, st_moe):
                found = module.all_gather_same_dim(tensors[rank])
                assert isinstance(found, list) and len(found) == size
                for got, want, old in zip(found, tensors, gather_equal(tensors[rank]), strict=True):
                    dense.assert_same_bits(got, want, shape)
                    dense.assert_same_bits(got, old, shape)

    sizes = sizes_for(size)
    for dim in (0, 1, -1):
        x = draw.parts((1, 2, 3), dim, sizes)[rank]
        dense.assert_same_bits(st_moe.gather_sizes(x, dim=dim), torch.tensor(sizes))
    with pytest.raises(TypeError):
        st_moe.gather_sizes(x, 0)

    for values, answer in (([3], True), ([3, 3, 3], True), ([3, 3, 4], False)):
        only_one = st_moe.has_only_one_value(torch.tensor(values))
        assert isinstance(only_one, torch.Tensor) and only_one.shape == ()
        assert bool(only_one) is answer

    for module in (mirasol, st_moe):
        for dim in (0, 1, 2, -1, -2, -3):
            x = draw.tensor((2, 3, 4))
            for length in (x.shape[dim], x.shape[dim] + 1, x.shape[dim] + 5):
                padded = module.pad_dim_to(x, length, dim)
                want = torch.zeros(dense.resized(x.shape, dim, length), dtype=x.dtype)
                want.narrow(dim, 0, x.shape[dim]).copy_(x)
                dense.assert_same_bits(padded, want)
                dense.assert_same_bits(padded, reference_pad_dim_to(x, length, dim))
        dense.assert_same_bits(module.pad_dim_to(x, 4), module.pad_dim_to(t=x, length=4, dim=0))

    assert st_moe.exists(0) and not st_moe.exists(None)
    assert st_moe.default(None, 5) == 5 and st_moe.default(0, 5) == 0
    assert st_moe.divisible_by(6, 3) and not st_moe.divisible_by(7, 3)


@ranks(1, 2, 3, 4)
def test_line_09_split_by_rank_gives_this_ranks_part_and_all_sizes(rank, size, seed):
    draw = Draw(seed)
    parts = tuple(draw.parts((1, 2), 0, sizes_for(size)))
    part, sizes = st_moe.split_by_rank(parts)
    dense.assert_same_bits(part, parts[rank])
    dense.assert_same_bits(sizes, torch.tensor(sizes_for(size)))
    assert sizes.device == part.device

    stacked = draw.tensor((size, 5, 2)).requires_grad_()
    part, sizes = st_moe.split_by_rank(stacked)
    dense.assert_same_bits(part, stacked[rank])
    dense.assert_same_bits(sizes, torch.tensor([5] * size))
    part.sum().backward()
    assert stacked.grad[rank].eq(1).all() and stacked.grad.sum() == 10

    if size > 1:  # and back: what was split is gathered again
        gathered, _ = st_moe.AllGather()(*st_moe.split_by_rank(parts))
        dense.assert_same_bits(gathered, torch.cat(parts))


@ranks(2, 3)
def test_line_10_a_non_contiguous_input_works(rank, size, seed):
    draw = Draw(seed)
    for dim in (0, 1):
        for rows in (sizes_for(size), [3] * size):
            parts = draw.parts((3, 3), dim, rows)
            old = pad_gather_mask(parts[rank], dim)
            for form, x in dense.memory_forms(parts[rank]):
                for name, (gather, _) in gathers(dim).items():
                    check_gather(gather(x, None), parts, dim, old, f"{name} {form}")
                    check_gather(gather(x, torch.tensor(rows)), parts, dim, old, f"{name} {form} sizes given")
    tensors = [draw.tensor((3, 4)) for _ in range(size)]
    for module in (musiclm, st_moe):
        for form, x in dense.memory_forms(tensors[rank]):
            for got, want in zip(module.all_gather_same_dim(x), tensors, strict=True):
                dense.assert_same_bits(got, want, form)


@ranks(2, 3)
def test_line_11_get_is_distributed_follows_the_group_that_is_made_and_destroyed(rank, size, tmp_path):
    for turn in range(2):
        assert mirasol.get_is_distributed() is True
        assert mirasol.get_is_distributed() is True
        x = torch.ones(rank + 1, 1)
        assert mirasol.all_gather(x, 0, None)[0].shape[0] == size * (size + 1) // 2
        dist.barrier()
        dist.destroy_process_group()
        assert mirasol.get_is_distributed() is False
        assert spear_tts.all_gather(x, 0, None) == (x, None)
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/alone{turn}{rank}", rank=0, world_size=1)
        assert mirasol.get_is_distributed() is False
        dist.destroy_process_group()
        dist.init_process_group("gloo", init_method=f"file://{tmp_path}/{turn}", rank=rank, world_size=size)


def test_line_11_get_is_distributed_is_false_without_a_group():
    assert mirasol.get_is_distributed() is False
