"""Tensors of a GPU from any layout to any other, with their gradients, against one process."""

from __future__ import annotations

import torch
import torch.distributed as dist

import shardway as sw
from tests.support import dense
from tests.support.gpu_cases import DEVICE, assert_close, on_cpu, on_device, sizes_of_groups
from tests.support.mesh_reference import Layouts, check


def local_of(pair, rank):
    local = pair.input(rank)
    return None if local is None else on_device(local)


def random_pairs(rank, size, seed):
    torch.use_deterministic_algorithms(True)
    layouts = Layouts(seed, size)
    for turn in range(120):
        pair = layouts.pair(longest=60 if turn % 16 == 0 else 7)
        t = sw.MeshTensor(local_of(pair, rank), pair.before)
        check(pair, sw.redistribute(t, pair.after), rank, on_cpu=on_cpu)
        if turn % 4 == 0:
            check(pair, sw.redistribute(t, pair.after, async_op=True).wait(), rank, "async", on_cpu=on_cpu)
    torch.use_deterministic_algorithms(False)


def lists_and_gradients(rank, size, seed):
    """The same pairs of layouts on the CPU are the reference: tests/python compares those with one process."""
    on_cpu_ranks = dist.new_group(backend="gloo") if DEVICE == "cuda" else dist.group.WORLD
    mesh = sw.Mesh((size,))
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn(size * 3 + 1, 5, dtype=torch.float64, generator=generator)
    ways = [
        (sw.Shard(0), sw.Replicate()),
        (sw.Shard(0), sw.Shard(1)),
        (sw.Replicate(), sw.Shard(0)),
        (sw.Partial(), sw.Replicate()),
        (sw.Partial(), sw.Shard(1)),
    ]
    inputs, results, wanted = [], [], []
    for source, target in ways:
        before = sw.Layout(tuple(whole.shape), torch.float64, mesh, [source])
        local = held_as(source, whole, size, rank)
        here, there = local.clone().requires_grad_(), on_device(local).requires_grad_()
        reference = sw.redistribute(sw.MeshTensor(here, before, group=on_cpu_ranks), [target]).local
        result = sw.redistribute(sw.MeshTensor(there, before), [target]).local
        assert_close(result, reference.detach(), f"{source} to {target}")
        upstream = torch.randn(reference.shape, dtype=torch.float64, generator=generator)
        (want,) = torch.autograd.grad(reference, here, upstream)
        (got,) = torch.autograd.grad(result, there, on_device(upstream))
        assert_close(got, want, f"gradient of {source} to {target}")
        inputs.append(sw.MeshTensor(on_device(local), before))
        results.append([target])
        wanted.append(reference.detach())
    for got in (sw.redistribute(inputs, results), sw.redistribute(inputs, results, async_op=True).wait()):
        for one, want in zip(got, wanted, strict=True):
            assert_close(one.local, want, "list")


def held_as(placement, whole, size, rank):
    if placement == sw.Partial():
        return whole * (rank + 1)
    return dense.block(whole, dense.chunk_sizes(len(whole), size), rank, 0) if placement == sw.Shard(0) else whole


@sizes_of_groups
def test_redistribute_gives_what_one_process_computes(run, size, seed):
    def body(rank, size):
        random_pairs(rank, size, seed)
        lists_and_gradients(rank, size, seed)

    run(size, body)
