"""What shardway does, in half a minute: a ragged gather, its gradient, and its time against the usual way."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the benchmark's rank launcher and clock, and the peer

import shardway as sw
from bench.forked_ranks import run_ranks
from bench.ragged_contenders import OPS, OURS, PEER, Batch, contenders
from bench.report import bytes_text, print_table, us_text
from bench.timing import Effort, Meeting, interleaved
from tests.support.pad_gather_mask import LocalSliceGather

ROWS = {2: (1, 3), 4: (2, 0, 1, 3)}
MEAN_BYTES = (2**12, 2**18, 2**22)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.5, help="time for one row of the speed table (default: 1.5)")
    seconds = parser.parse_args().seconds
    torch.set_num_threads(1)

    print("1. Gather: every rank holds another number of rows and wants the rows of all ranks\n")
    print("   gathered, sizes = sw.all_gather_v(x)\n")
    right = [_print_gather(ranks, run_ranks(ranks, _gather, timeout_s=60)) for ranks in ROWS]

    print("2. Backward: is the gradient what one process would compute from all rows?\n")
    right += [_print_gradients(ranks, run_ranks(ranks, _gradients, timeout_s=60)) for ranks in ROWS]

    print("\n3. Speed: one call on gloo, against the distributed.py that you may have copied")
    print("   (exchange sizes, pad, all_gather, concatenate, mask), ragged sizes 1:3:5:...\n")
    lines = [line for ranks in ROWS for line in run_ranks(ranks, _speed, Meeting(ranks), seconds, timeout_s=120)[0]]
    print_table(["ranks", "data a rank", "copied distributed.py", OURS, "times faster"], lines)

    print("\nNext: README.md has the import line that replaces your copy, and which grad= to use.")
    print("      `make test` runs the tests and examples, `make bench-ragged` measures all sizes.")
    if not all(right):
        print("\nBut something above is not as it should be.")
    return 0 if all(right) else 1


def _gather(rank: int, ranks: int) -> tuple[list[int], list[int], tuple[int, ...]]:
    rows = torch.tensor([[10 * rank + row] for row in range(ROWS[ranks][rank])], dtype=torch.long).reshape(-1, 1)
    gathered, sizes = sw.all_gather_v(rows)
    return rows.flatten().tolist(), gathered.flatten().tolist(), sizes


def _print_gather(ranks: int, answers: list[tuple[list[int], list[int], tuple[int, ...]]]) -> bool:
    expected = [row for rows, _, _ in answers for row in rows]
    for rank, (rows, _, _) in enumerate(answers):
        held = f"rank {rank} of {ranks} holds {len(rows)} row{'' if len(rows) == 1 else 's'}"
        print(f"   {held:26} {_rows_text(rows)}".rstrip())
    print(f"   {'every rank gets':26} {_rows_text(answers[0][1])}    sizes {answers[0][2]}\n")
    return all(gathered == expected and sizes == ROWS[ranks] for _, gathered, sizes in answers)


def _rows_text(rows: list[int]) -> str:
    return " ".join(f"{row:02d}" for row in rows)


def _gradients(rank: int, ranks: int) -> dict[str, float]:
    """How far each way's gradient is from the one-process gradient of a contrastive loss."""
    torch.manual_seed(0)
    sizes = ROWS[ranks]
    everything = torch.randn(sum(sizes), 4, dtype=torch.float64, requires_grad=True)
    first = sum(sizes[:rank])
    (expected,) = torch.autograd.grad(_loss(everything, everything, 0), everything)

    own = everything.detach()[first : first + sizes[rank]].clone().requires_grad_()
    gathered = {
        'sw.all_gather_v(x, grad="sum")': sw.all_gather_v(own)[0],
        "copied distributed.py": LocalSliceGather.apply(own, 0, None)[0],
    }
    differences = {}
    for name, rows in gathered.items():
        (grad,) = torch.autograd.grad(_loss(own, rows, first), own)
        difference = (grad - expected[first : first + sizes[rank]]).abs()
        differences[name] = float(difference.max()) if difference.numel() else 0.0
    return differences


def _loss(own: Tensor, everything: Tensor, first: int) -> Tensor:
    """Of the rows that start at row `first` of all rows: each is to be found among all."""
    own_row = torch.arange(first, first + len(own))
    return torch.nn.functional.cross_entropy(own @ everything.T, own_row, reduction="sum")


def _print_gradients(ranks: int, answers: list[dict[str, float]]) -> bool:
    worst = {name: max(answer[name] for answer in answers) for name in answers[0]}
    for name, difference in worst.items():
        verdict = "yes" if difference < 1e-12 else "no "
        print(f"   {ranks} ranks  {name:32} {verdict}  largest difference {difference:.1e}")
    return next(iter(worst.values())) < 1e-12


def _speed(rank: int, ranks: int, meeting: Meeting, seconds: float) -> list[list[str]]:
    lines = []
    for mean_bytes in MEAN_BYTES:
        batch = Batch(rank, ranks, mean_bytes)
        timings = interleaved(meeting, rank, contenders(batch, OPS[0]), Effort(seconds=seconds))
        peer, ours = timings[PEER].us, timings[OURS].us
        lines.append([str(ranks), bytes_text(mean_bytes), us_text(peer), us_text(ours), f"{peer / ours:.1f}"])
    return lines


if __name__ == "__main__":
    sys.exit(main())
