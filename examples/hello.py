"""Ranks with different numbers of rows share them: torchrun --standalone --nproc-per-node 4 hello.py"""

import torch
import torch.distributed as dist

import shardway as sw

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
x = torch.full((rank + 1, 2), float(rank), requires_grad=True)  # 1 row on rank 0, 2 on rank 1, ...

everyone, sizes = sw.all_gather_v(x)  # the rows of all ranks, in rank order, without padding
assert sizes == tuple(range(1, world + 1)) and len(everyone) == sum(sizes)

everyone.square().sum().backward()  # every rank's loss has read x, and all of them count
assert torch.equal(x.grad, world * 2 * x)

mine = sw.reduce_scatter_v(everyone.detach(), sizes)  # the sum over ranks, this rank's rows of it
assert torch.equal(mine, world * x)

send_sizes = [len(x)] + [0] * (world - 1)  # all rows go to rank 0, none to the others
arrived, came_from = sw.all_to_all_v(x, send_sizes)
back, _ = sw.all_to_all_v(arrived, came_from)  # and home again
assert torch.equal(back, x)

print(f"ok: rank {rank} of {world} had {len(x)} rows and now sees {len(everyone)}", flush=True)
dist.destroy_process_group()
