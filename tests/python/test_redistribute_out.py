"""Redistributions that write into the caller's tensors: plain and prepared ones."""

from __future__ import annotations

import os
import re

import pytest
import torch

import shardway as sw
from tests.support.mesh_reference import Layouts, same_bits
from tests.support.ranks import ranks
from tests.support.refusals import assert_says, assert_usable, message_of

TRANSPORTS = pytest.mark.parametrize("transport", ["shm", "c10d"])


class View:
    """A buffer full of 0xFF, and a view of it in the middle: plain, transposed or strided."""

    def __init__(self, like: torch.Tensor, kind: str) -> None:
        shape = list(like.shape)
        if kind == "transposed":
            self.buffer = torch.empty([*shape[::-1][:-1], shape[0] + 2] if shape else [], dtype=like.dtype)
            self.view = self.buffer.permute(*reversed(range(len(shape))))[1:-1] if shape else self.buffer
        elif kind == "strided" and shape:
            self.buffer = torch.empty([*shape[:-1], 2 * shape[-1] + 1], dtype=like.dtype)
            self.view = self.buffer[..., 1::2]
        else:
            self.buffer = torch.empty(like.numel() + 3, dtype=like.dtype)
            self.view = self.buffer[2 : 2 + like.numel()].view(shape)
        assert list(self.view.shape) == shape
        self.poison()

    def poison(self) -> None:
        if self.buffer.dim() and self.buffer.numel():
            self.buffer.view(torch.uint8).fill_(0xFF)

    def check(self, wanted: torch.Tensor) -> None:
        """The view has these bits, and what is around it was not written."""
        assert same_bits(self.view.contiguous(), wanted.contiguous()), f"{self.view} instead of {wanted}"
        if self.view.dim():
            whole = self.buffer.contiguous().view(torch.uint8)
            assert int((whole != 0xFF).sum()) <= wanted.numel() * wanted.element_size()


@TRANSPORTS
@ranks(2, 3)
def test_any_redistribution_lands_in_views_and_nowhere_else(rank, size, transport, seed):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    draw = Layouts(seed, size)
    for _ in range(6):
        pairs = [draw.pair() for _ in range(draw.random.randint(1, 5))]
        pairs.append(draw.pair(torch.float32, longest=60))
        kinds = [draw.random.choice(("plain", "transposed", "strided", "none")) for _ in pairs]
        wanted = [pair.output(rank) for pair in pairs]
        views = [
            None if out is None or kind == "none" else View(out, kind) for out, kind in zip(wanted, kinds, strict=True)
        ]
        outs = [view and view.view for view in views]
        given = [sw.MeshTensor(pair.input(rank), pair.before) for pair in pairs]
        targets = [pair.after for pair in pairs]

        def check(results, wanted=wanted, views=views):
            for result, value, view in zip(results, wanted, views, strict=True):
                assert (result.local is None) == (value is None)
                if view is not None:
                    assert result.local is view.view
                    view.check(value)
                    view.poison()
                elif value is not None:
                    assert same_bits(result.local, value)

        check(sw.redistribute(given, targets, out=outs))
        call = sw.prepare(sw.redistribute, given, targets, out=outs)
        check(call.result)
        for _ in range(2):
            check(call.run())
        call.run([sw.MeshTensor(pair.input(rank), pair.before) for pair in pairs])  # other memory
        check(call.result)


@ranks(2)
def test_moves_stay_ready_for_inputs_that_alternate(rank, size):
    layout = sw.Layout((4, 3), torch.float32, sw.Mesh((size,)), [sw.Shard(0)])
    sets = [[sw.MeshTensor(torch.full((2, 3), 10.0 * s + rank), layout)] for s in range(3)]
    out = torch.empty(4, 3)
    call = sw.prepare(sw.redistribute, sets[0], [sw.Replicate()], out=[out])
    call.keep_ready(2)
    for s in (1, 0, 1, 0, 2, 1, 2, 0):
        call.run(sets[s])
        assert out[:, 0].tolist() == [10.0 * s, 10.0 * s, 10.0 * s + 1, 10.0 * s + 1]
    with pytest.raises(ValueError, match="sets=0 is not positive"):
        call.keep_ready(0)


@TRANSPORTS
@ranks(2)
def test_an_unchanged_layout_a_rank_without_a_part_and_gradients(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    layout = sw.Layout((4, 3), torch.float32, sw.Mesh((size,)), [sw.Shard(0)])
    x = torch.full((2, 3), float(rank), requires_grad=True)
    out, same = torch.empty(3, 4).T, torch.empty(2, 3)
    (moved,) = sw.redistribute([sw.MeshTensor(x, layout)], [sw.Replicate()], out=[out])
    moved.local.sum().backward()
    assert out[:, 0].tolist() == [0, 0, 1, 1] and not out.requires_grad and bool((x.grad == 1).all())
    kept = sw.redistribute([sw.MeshTensor(x.detach(), layout)], [[sw.Shard(0)]], out=[same])
    assert kept[0].local is same and torch.equal(same, x)
    only = sw.Mesh((1,), ranks=[1])
    here = torch.empty(4, 3) if rank == 1 else None
    given = sw.MeshTensor(x.detach(), layout)
    (moved,) = sw.redistribute([given], [sw.Replicate()], mesh=only, out=[here])
    assert moved.local is here and (here is None or here[:, 1].tolist() == [0, 0, 1, 1])
    whole = sw.Layout((4, 3), torch.float32, sw.Mesh((1,)), [sw.Replicate()])
    known = [sw.MeshTensor(torch.full((4, 3), 8.0), whole)] if rank == 0 else [None]
    (moved,) = sw.redistribute(known, [sw.Replicate()], mesh=only, out=[here])
    assert moved.local is here and (here is None or bool((here == 8).all()))


@TRANSPORTS
@ranks(3)
def test_an_out_that_does_not_fit_is_one_error_on_every_rank(rank, size, transport):
    os.environ["SHARDWAY_TRANSPORT"] = transport
    layout = sw.Layout((6, 3), torch.float32, sw.Mesh((size,)), [sw.Shard(0)])
    x = torch.ones(2, 3)
    t = sw.MeshTensor(x, layout)
    good = torch.empty(6, 3)

    def says(words, out):
        mine = out if rank == 1 else [good]
        assert_says(
            message_of(lambda: sw.redistribute([t], [sw.Replicate()], out=mine)), [re.escape(words), "rank 1"], words
        )

    says("out has shape [6, 2], but this rank's part has [6, 3]", [torch.empty(6, 2)])
    says("out has dtype float64, but the tensor has float32", [torch.empty(6, 3, dtype=torch.float64)])
    says("out requires grad", [torch.empty(6, 3, requires_grad=True)])
    says("out overlaps itself", [torch.empty(1, 3).expand(6, 3)])
    says("out has 2 entries, but there are 1 tensors", [good, good])
    says("out is a Tensor, but t is a list", good)
    says("an entry of out is a int, not a tensor", [3])
    says("only dense", [torch.empty(6, 3).to_sparse()])
    alone = lambda: sw.redistribute(t, [sw.Replicate()], out=good if rank == 1 else None)  # noqa: E731
    assert_says(message_of(alone), ["out is for a list", "rank 1"], "one tensor")
    assert_usable(rank, size)


def test_without_a_group_it_is_a_copy():
    layout = sw.Layout((4, 3), torch.float32, sw.Mesh((1,)), [sw.Shard(0)])
    x, out = torch.ones(4, 3), torch.empty(3, 4).T
    assert sw.redistribute([sw.MeshTensor(x, layout)], [[sw.Replicate()]], out=[out])[0].local is out
    assert torch.equal(out, x)
    call = sw.prepare(sw.redistribute, [sw.MeshTensor(x, layout)], [[sw.Replicate()]], out=[out])
    x.fill_(2.0)
    call.run()
    assert torch.equal(out, x)
