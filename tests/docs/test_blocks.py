"""Every ```python block of README and docs runs, or says what it needs. tests/support/pages.py has the marks."""

from __future__ import annotations

import itertools
import os
import socket
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.pages import ROOT, Block, blocks_of, pages
from tests.support.ranks import run_ranks

TIMEOUT_S = 120.0
BLOCKS = [block for page in pages() for block in blocks_of(page)]
RUN = [block for block in BLOCKS if block.needs is None and block.same_as is None]
TOGETHER = [block for block in RUN if not block.without_group]
ALONE = [block for block in RUN if block.without_group]


def run_block(block: Block, names: dict[str, object]) -> None:
    """What comes before a block may import what it likes; the block itself sees its values only."""
    before: dict[str, object] = {"torch": torch, "dist": dist, "sw": sw, **names}
    exec(compile(block.before, f"before {block.name}", "exec"), before)
    names.update((k, v) for k, v in before.items() if k != "__builtins__" and not isinstance(v, types.ModuleType))
    try:
        exec(compile("\n" * (block.line - 1) + block.text, block.page, "exec"), names)
    except Exception as error:
        raise AssertionError(f"{block.name}: {type(error).__name__}: {error}") from error


def run_pages(rank: int, size: int, blocks: list[Block]) -> None:
    for page, of_page in itertools.groupby(blocks, key=lambda block: block.page):
        names: dict[str, object] = {"__name__": page}
        for block in of_page:
            run_block(block, names)
        dist.barrier()


def by_ranks() -> Iterator[tuple[int, list[Block]]]:
    for size in sorted({block.ranks for block in TOGETHER}):
        yield size, [block for block in TOGETHER if block.ranks == size]


@pytest.mark.parametrize(
    ("size", "blocks"), list(by_ranks()), ids=lambda value: f"{value}ranks" if isinstance(value, int) else ""
)
def test_blocks_run(size: int, blocks: list[Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_ranks(size, run_pages, blocks, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("block", ALONE, ids=lambda block: block.name)
def test_blocks_that_begin_without_a_group_run(block: Block) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def enter(rank: int, size: int) -> None:  # as torchrun would
        os.environ.update(RANK=f"{rank}", WORLD_SIZE=f"{size}", MASTER_ADDR="127.0.0.1", MASTER_PORT=f"{port}")
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"

    def body(rank: int, size: int) -> None:
        run_block(block, {"__name__": block.page})

    run_ranks(block.ranks, body, timeout_s=TIMEOUT_S, enter=enter)


def test_blocks_that_show_a_file_show_all_of_it() -> None:
    shown = [block for block in BLOCKS if block.same_as is not None]
    assert shown
    for block in shown:
        assert block.text == (ROOT / str(block.same_as)).read_text(), block.name


def test_what_runs_and_what_does_not_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    unfit = [block for block in BLOCKS if block.needs is not None]
    with capsys.disabled():
        print(f"\n{len(BLOCKS)} python blocks in {len({b.page for b in BLOCKS})} pages: ", end="")
        print(f"{len(BLOCKS) - len(unfit)} run, {len(unfit)} need what is not here:")
        for block in unfit:
            print(f"  {block.name}: {block.needs}")
    assert all(block.needs for block in unfit)
    assert len(unfit) < len(BLOCKS) / 3
