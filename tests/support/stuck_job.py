"""Ranks that get stuck: rank 1 calls another op than rank 0, rank 2 is stopped, and rank 3 is busy in Python.

shardway launch -n 4 python stuck_job.py TIMEOUT
"""

from __future__ import annotations

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import shardway as sw


def main() -> int:
    timeout = datetime.timedelta(seconds=float(sys.argv[1]))
    dist.init_process_group("gloo", timeout=timeout)
    rank = dist.get_rank()
    print(f"rank {rank} is process {os.getpid()}", flush=True)
    for _ in range(11):
        sw.all_reduce(torch.ones(1000))
    sw.all_gather_v(torch.ones(rank + 1, 256))
    try:
        if rank == 0:
            sw.all_gather_v(torch.ones(4, 256))
        elif rank == 1:
            sw.all_reduce(torch.ones(1000))
        elif rank == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            time.sleep(600)
    except dist.DistBackendError as error:
        print(error, flush=True)
    time.sleep(600)  # until somebody ends the job
    return 0


if __name__ == "__main__":
    sys.exit(main())
