"""A mixture of experts whose experts live on different ranks: tokens travel to their expert and back.

Every rank has its own number of tokens and a router that picks one expert per token. Tokens are sorted by expert, sent
to the rank that holds it, processed there, sent back and put in their old order. Outputs and gradients (of the tokens,
the router and every expert) are those of one process that has all tokens and all experts.
"""

from __future__ import annotations

import argparse
import sys

import torch
import torch.distributed as dist
from launch import run_ranks
from torch import Tensor, nn

import shardway as sw

WIDTH, HIDDEN = 8, 16
EXPERTS_PER_RANK = 2
TOLERANCE = 1e-10


def make_model(experts: int) -> tuple[nn.Linear, nn.ModuleList]:
    router = nn.Linear(WIDTH, experts)
    with torch.no_grad():
        router.bias[-EXPERTS_PER_RANK:] -= 100.0  # starves the last rank's experts, as routers do: it gets zero rows
    mlps = [nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH)) for _ in range(experts)]
    return router, nn.ModuleList(mlps)


def apply_experts(tokens: Tensor, expert: Tensor, experts: nn.ModuleList, first: int = 0) -> Tensor:
    """Each token through its expert; `experts` holds those numbered from `first` on."""
    result = torch.zeros_like(tokens)
    for number, mlp in enumerate(experts, start=first):
        chosen = (expert == number).nonzero().flatten()
        result = result.index_copy(0, chosen, mlp(tokens[chosen]))
    return result


def one_process(tokens: Tensor, router: nn.Linear, experts: nn.ModuleList) -> Tensor:
    weight, expert = router(tokens).softmax(-1).max(-1)
    return weight.unsqueeze(-1) * apply_experts(tokens, expert, experts)


def distributed(tokens: Tensor, router: nn.Linear, experts: nn.ModuleList, rank: int, ranks: int) -> tuple[Tensor, int]:
    """This rank's tokens through experts anywhere; also how many tokens came to this rank's experts."""
    weight, expert = router(tokens).softmax(-1).max(-1)
    order = expert.argsort(stable=True)
    send_sizes = torch.bincount(expert // EXPERTS_PER_RANK, minlength=ranks)

    arrived, recv_sizes = sw.all_to_all_v(tokens[order], send_sizes)
    arrived_expert, _ = sw.all_to_all_v(expert[order], send_sizes, recv_sizes=recv_sizes)  # known now: no exchange
    processed = apply_experts(arrived, arrived_expert, experts, first=rank * EXPERTS_PER_RANK)
    returned, _ = sw.all_to_all_v(processed, recv_sizes, recv_sizes=send_sizes)

    in_old_order = returned[order.argsort()]
    return weight.unsqueeze(-1) * in_old_order, len(arrived)


def step(rank: int, ranks: int, most_tokens: int) -> None:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)  # the same model and the same tokens on every rank
    router, all_experts = make_model(ranks * EXPERTS_PER_RANK)
    counts = [max(1, most_tokens - 5 * r) for r in range(ranks)]
    all_tokens = torch.randn(sum(counts), WIDTH, requires_grad=True)
    all_targets = torch.randn(sum(counts), WIDTH)

    expected_output = one_process(all_tokens, router, all_experts)
    everything = [all_tokens, *router.parameters(), *all_experts.parameters()]
    loss = (expected_output * all_targets).sum()
    expected_grads = torch.autograd.grad(loss, everything, materialize_grads=True)
    expected = dict(zip(everything, expected_grads, strict=True))

    tokens = all_tokens.detach().split(counts)[rank].clone().requires_grad_()
    experts = all_experts[rank * EXPERTS_PER_RANK : (rank + 1) * EXPERTS_PER_RANK]
    output, arrived = distributed(tokens, router, experts, rank, ranks)
    own = [tokens, *router.parameters(), *experts.parameters()]
    loss = (output * all_targets.split(counts)[rank]).sum()
    grads = dict(zip(own, torch.autograd.grad(loss, own, materialize_grads=True), strict=True))
    for parameter in router.parameters():  # every rank has a copy of the router
        dist.all_reduce(grads[parameter])

    difference = {
        "outputs": distance(output, expected_output.split(counts)[rank]),
        "gradients of the tokens": distance(grads[tokens], expected[all_tokens].split(counts)[rank]),
        "gradients of the router": max(distance(grads[p], expected[p]) for p in router.parameters()),
        "gradients of the experts": max(distance(grads[p], expected[p]) for p in experts.parameters()),
    }
    report(rank, ranks, counts, arrived, difference)


def report(rank: int, ranks: int, counts: list[int], arrived: int, difference: dict[str, float]) -> None:
    arrivals, _ = sw.all_gather_v(torch.tensor([arrived]))
    worst, _ = sw.all_gather_v(torch.tensor([list(difference.values())]))
    if rank == 0:
        print(f"{ranks} ranks, {EXPERTS_PER_RANK} experts each")
        print(f"tokens per rank {counts}, tokens that came to each rank's experts {arrivals.tolist()}")
        print("largest difference from one process with all tokens and experts:")
        for what, value in zip(difference, worst.amax(0).tolist(), strict=True):
            print(f"  {what:25} {value:.1e}")
    if not max(difference.values()) < TOLERANCE:
        raise SystemExit(f"rank {rank}: the distributed result is not the one-process result: {difference}")
    if rank == 0:
        print("ok: the exchange gives the outputs and gradients of one process")


def distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).detach().abs().max()) if expected.numel() else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Under torchrun it joins the ranks that torchrun started; otherwise it forks its own.",
    )
    parser.add_argument("-n", "--ranks", type=int, default=4, help="ranks to fork (default: 4)")
    parser.add_argument("--tokens", type=int, default=24, help="tokens of the fullest rank (default: 24)")
    options = parser.parse_args()
    return run_ranks(step, options.ranks, options.tokens)


if __name__ == "__main__":
    sys.exit(main())
