"""A contrastive (CLIP-like) loss over batches whose size differs per rank.

Every rank embeds its own pairs, gathers the embeddings of all ranks, and takes the loss of its own rows against all
columns. The losses of the ranks add up to the loss that one process would have on the whole batch, and so do the
gradients: sw.all_gather_v passes back, to each rank, what every other rank's loss says about its rows.

With --compile the same loss is one graph of torch.compile, whose sizes differ per rank.
"""

from __future__ import annotations

import argparse
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from launch import run_ranks
from torch import Tensor, nn

import shardway as sw

FEATURES, EMBEDDING = 12, 8
TOLERANCE = 1e-10


class TwoTowers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Linear(FEATURES, EMBEDDING, dtype=torch.float64)
        self.text = nn.Linear(FEATURES, EMBEDDING, dtype=torch.float64)
        self.log_scale = nn.Parameter(torch.tensor(1.5, dtype=torch.float64))

    def forward(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        return F.normalize(self.image(images), dim=-1), F.normalize(self.text(texts), dim=-1)


def loss_of_rows(
    model: TwoTowers, image: Tensor, text: Tensor, all_image: Tensor, all_text: Tensor, first: int
) -> Tensor:
    """The part of the symmetric loss that the pairs from row `first` on bring to the mean over all pairs."""
    scale = model.log_scale.exp()
    own_pair = torch.arange(first, first + len(image))
    image_to_text = F.cross_entropy(scale * image @ all_text.T, own_pair, reduction="sum")
    text_to_image = F.cross_entropy(scale * text @ all_image.T, own_pair, reduction="sum")
    return (image_to_text + text_to_image) / (2 * len(all_image))


def one_process(model: TwoTowers, images: Tensor, texts: Tensor) -> list[Tensor]:
    """The loss of the whole batch and its gradients."""
    image, text = model(images, texts)
    loss = loss_of_rows(model, image, text, image, text, first=0)
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


def loss_of_rank(model: TwoTowers, images: Tensor, texts: Tensor, grad: str) -> Tensor:
    image, text = model(images, texts)
    all_image, sizes = sw.all_gather_v(image, grad=grad)
    all_text, _ = sw.all_gather_v(text, sizes=sizes, grad=grad)  # the sizes are known now: no second exchange
    return loss_of_rows(model, image, text, all_image, all_text, first=sum(sizes[: dist.get_rank()]))


def distributed(model: TwoTowers, images: Tensor, texts: Tensor, grad: str, backend: str | None) -> list[Tensor]:
    """The same from every rank's own pairs: loss and gradients, added over the ranks."""
    loss_of = torch.compile(loss_of_rank, fullgraph=True, backend=backend) if backend else loss_of_rank
    loss = loss_of(model, images, texts, grad)
    results = [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]
    for result in results:
        dist.all_reduce(result)
    return results


def step(rank: int, ranks: int, most_pairs: int, grad: str, backend: str | None) -> None:
    pairs = [max(1, most_pairs - 4 * r) for r in range(ranks)]
    if ranks > 1:
        pairs[-1] = 1  # a rank with a single pair: on its own it would have nothing to contrast with
    torch.manual_seed(0)  # the same model and the same whole batch on every rank
    model = TwoTowers()
    images, texts = torch.randn(2, sum(pairs), FEATURES, dtype=torch.float64)

    expected = one_process(model, images, texts)
    own = images.split(pairs)[rank], texts.split(pairs)[rank]
    found = distributed(model, *own, grad, backend)
    difference = max(float((f - e).abs().max()) for f, e in zip(found, expected, strict=True))

    if rank == 0:
        print(f"{ranks} ranks, pairs per rank {pairs}")
        print(f"loss: one process {expected[0]:.12f}, added over the ranks {found[0]:.12f}")
        print(f'grad="{grad}": largest difference from the one-process gradient {difference:.1e}', flush=True)
    if not difference < TOLERANCE:
        raise SystemExit(f"rank {rank}: the distributed gradient is not the one-process gradient")
    if rank == 0:
        print("ok: the distributed gradient is the one-process gradient")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Under torchrun it joins the ranks that torchrun started; otherwise it forks its own.",
    )
    parser.add_argument("-n", "--ranks", type=int, default=4, help="ranks to fork (default: 4)")
    parser.add_argument("--pairs", type=int, default=12, help="pairs of the fullest rank (default: 12)")
    parser.add_argument(
        "--grad",
        choices=["sum", "local"],
        default="sum",
        help="local drops what the other ranks say about this rank's rows: the check then fails (default: sum)",
    )
    parser.add_argument(
        "--compile",
        nargs="?",
        const="inductor",
        metavar="BACKEND",
        help="compile the loss, in one graph, with this backend of torch.compile (inductor)",
    )
    options = parser.parse_args()
    return run_ranks(step, options.ranks, options.pairs, options.grad, options.compile)


if __name__ == "__main__":
    sys.exit(main())
