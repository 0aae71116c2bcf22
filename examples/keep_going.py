"""Training that goes on when a rank is killed: with the ranks that are left, from their memory.

Weights and Adam's moments are sharded over the ranks, and the next rank keeps a copy of each shard, renewed in every
step. One rank is killed, rank 0 or any other. The survivors shrink the group, put the shards together again from what
they hold, and repeat the step. No file is read, and no store is needed.

Without a launcher it starts itself twice: with one rank killed, and with a rank less from the state in which the
survivors went on. The losses must be the same, bit by bit.

    python examples/keep_going.py --kill 0
    shardway launch -n 4 --may-lose 1 python examples/keep_going.py --kill 0
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import mse_loss

import shardway as sw

WIDTH, HIDDEN, BATCH = 8, 33, 250
SHAPES = ((HIDDEN, WIDTH), (HIDDEN,), (1, HIDDEN), (1,))
SHARDS = [sw.Shard(0)]


@dataclass
class State:
    """What a step starts from. The weights are one vector, and so are the two moments of Adam."""

    step: int
    shards: list[sw.MeshTensor]
    copies: list[sw.MeshTensor]  # of the rank before this one

    @property
    def group(self) -> dist.ProcessGroup | None:
        return self.shards[0].group


def with_copies(step: int, shards: list[sw.MeshTensor]) -> State:
    ranks = shards[0].layout.mesh.ranks
    turned = sw.Mesh((len(ranks),), ranks=(*ranks[1:], ranks[0]))
    return State(step, shards, sw.redistribute(shards, SHARDS, mesh=turned))


def first_state(file: Path | None) -> State:
    """The state of a file, or a fresh one. Every rank has the whole, and keeps its part."""
    if file is None:
        torch.manual_seed(0)
        weights = torch.cat([torch.randn(shape).flatten() / WIDTH**0.5 for shape in SHAPES])
        step, wholes = 0, [weights, torch.zeros_like(weights), torch.zeros_like(weights)]
    else:
        step, wholes = torch.load(file)
    mesh = sw.Mesh((dist.get_world_size(),))
    return with_copies(step, [sw.distribute(whole, mesh, SHARDS) for whole in wholes])


def loss_of(weights: Tensor, x: Tensor) -> Tensor:
    """The share of these rows in the loss of the whole batch."""
    parts = weights.split([shape.numel() for shape in map(torch.Size, SHAPES)])
    up, bias, down, offset = (part.view(shape) for part, shape in zip(parts, SHAPES, strict=True))
    found = torch.relu(x @ up.T + bias) @ down.T + offset
    return mse_loss(found, x.sin().sum(1, keepdim=True), reduction="sum") / BATCH


def batch_of(step: int, group: dist.ProcessGroup | None) -> Tensor:
    """This rank's rows of the batch, which depends on the step alone."""
    batch = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))
    return batch.tensor_split(dist.get_world_size(group))[dist.get_rank(group)]


def next_state(state: State) -> tuple[Tensor, State]:
    """One step of Adam. The state before it stays as it was."""
    whole = state.shards[0].full()
    assert whole is not None
    whole.requires_grad_()
    loss = loss_of(whole, batch_of(state.step, state.group))
    loss.backward()
    assert whole.grad is not None
    weights, first, second = (t.local for t in state.shards)
    layout, group = state.shards[0].layout, state.group
    sizes = [layout.box(rank)[1][0] for rank in layout.mesh.ranks]
    grad = sw.reduce_scatter_v(whole.grad, sizes, group=group)
    total = sw.all_reduce(loss.detach(), group=group)
    step = state.step + 1
    first = torch.lerp(grad, first, 0.9)
    second = torch.lerp(grad * grad, second, 0.99)
    weights = weights - 0.03 * (first / (1 - 0.9**step)) / ((second / (1 - 0.99**step)).sqrt() + 1e-8)
    return total, with_copies(step, [sw.MeshTensor(part, layout, group) for part in (weights, first, second)])


def rescued(states: list[State], living: dist.ProcessGroup) -> State:
    """The newest state that all survivors have, on them. A rank may have finished a step that another has not."""
    step = int(sw.all_reduce(torch.tensor(states[-1].step), op="min", group=living))
    state = states[-1] if states[-1].step == step else states[0]
    return with_copies(step, sw.redistribute(state.shards, SHARDS, group=living, copies=state.copies))


def save(state: State, file: Path) -> None:
    wholes = [shard.full() for shard in state.shards]
    if dist.get_rank(state.group) == 0:
        torch.save((state.step, wholes), file)


class Killer:
    """On the rank before the victim: kills it somewhere in a step, and measures from then on."""

    def __init__(self, victim: int, step: int) -> None:
        pids, _ = sw.all_gather_v(torch.tensor([os.getpid()]))
        is_here = victim >= 0 and dist.get_rank() == (victim - 1) % len(pids)
        self.pid = int(pids[victim]) if is_here else 0
        self.victim, self.step, self.killed_at = victim, step, 0.0
        self.marks: list[str] = []

    def before(self, step: int) -> None:
        if self.pid and not self.killed_at and step == self.step:
            self.killed_at = time.monotonic()
            os.kill(self.pid, signal.SIGKILL)

    def mark(self, what: str) -> None:
        if self.killed_at:
            self.marks.append(f"{what} after {(time.monotonic() - self.killed_at) * 1e3:.0f} ms")

    def report(self) -> None:
        if self.killed_at:
            print(f"rank {self.victim} was killed: {', '.join(self.marks)}", flush=True)
            self.killed_at, self.pid = 0.0, 0


def train(options: argparse.Namespace) -> None:
    dist.init_process_group(options.backend)
    torch.set_default_dtype(torch.float64)
    living = dist.group.WORLD
    start = first_state(options.load)
    states = [start, start]  # the last two
    killer = Killer(options.kill, options.at)
    while states[-1].step < options.steps:
        try:
            if states[-1].group is not living:
                start = rescued(states, living)
                killer.mark("state")
                states = [start, start]
            killer.before(states[-1].step)
            loss, state = next_state(states[-1])
        except dist.DistBackendError as error:
            killer.mark("error")
            living = sw.shrink(living)
            killer.mark("group")
            if dist.get_rank(living) == 0:
                print(f"{error}\n{living.size()} ranks go on", flush=True)
            continue
        states = [states[-1], state]
        if dist.get_rank(living) == 0:
            print(f"step {state.step} on {living.size()} ranks: loss {float(loss)!r}", flush=True)
        if living is not dist.group.WORLD:
            killer.mark("next step finished")
            killer.report()
    if options.save:
        save(start, options.save)


def losses_in(output: str, ranks: int) -> dict[int, float]:
    """The loss after every step that so many ranks have made."""
    lines = re.findall(rf"step (\d+) on {ranks} ranks: loss (\S+)", output)
    return {int(step): float(loss) for step, loss in lines}


def launched(options_of_launch: list[object], *arguments: object) -> str:
    program = shutil.which("shardway", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        raise SystemExit("the program shardway is not there")
    command = [program, "launch", *options_of_launch, sys.executable, __file__, *arguments]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout, end="", flush=True)
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout


def compare(options: argparse.Namespace) -> int:
    shared = ["--steps", options.steps, "--backend", options.backend]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.pt"
        kill = ["--kill", options.kill, "--at", options.at, "--save", file]
        output = launched(["-n", options.ranks, "--may-lose", 1], *shared, *kill)
        print(f"the same from there, started with {options.ranks - 1} ranks:", flush=True)
        other = launched(["-n", options.ranks - 1], *shared, "--kill", -1, "--load", file)
    losses, reference = losses_in(output, options.ranks - 1), losses_in(other, options.ranks - 1)
    if not losses or losses != reference:
        print(f"the losses differ: {losses} and {reference}", file=sys.stderr)
        return 1
    print(f"ok: after rank {options.kill} was killed, {len(losses)} losses are those of a run that was started so")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--ranks", type=int, default=4, help="ranks to start with (default: 4)")
    parser.add_argument("--steps", type=int, default=8, help="steps to train (default: 8)")
    parser.add_argument("--kill", type=int, default=2, help="the rank to kill; -1 for none (default: 2)")
    parser.add_argument("--at", type=int, default=4, help="the step in which it is killed (default: 4)")
    parser.add_argument("--backend", default="gloo", help="of the process group (default: gloo)")
    parser.add_argument("--save", type=Path, help="where to write the state that was last started from")
    parser.add_argument("--load", type=Path, help="a state to start from")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        return compare(options)
    train(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
