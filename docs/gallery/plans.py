"""The plans of the gallery: how each is asked for, and what it teaches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Exhibit:
    """One plan. `moment` is the share of the timeline at which its picture is taken."""

    name: str
    title: str
    call: str
    lesson: str
    moment: float = 0.35


EXHIBITS = (
    Exhibit(
        "ragged-gather",
        "Gather shards of any size",
        "--mesh 4 --shape 16x8 --from 'S0[3,0,8,5]' --to R",
        "Every rank has as many rows as it happens to have, rank 1 none. Nothing is padded: each rank sends what "
        "it holds, once to every other, and the rows land where they stay. The busiest rank sends its eight rows "
        "three times; rank 1 sends nothing and still ends with the whole tensor.",
    ),
    Exhibit(
        "slice",
        "What costs nothing",
        "--mesh dp=2,tp=4 --shape 4096x4096 --from R,S0 --to S1,S0",
        "Going from a replica to a shard is a slice: every rank already holds what it is to keep. The plan has "
        "one step, no byte moves, and the time is zero. Layouts that differ by such steps are neighbours for "
        "free, which the planner uses on its way to others.",
        moment=0.5,
    ),
    Exhibit(
        "all-to-all",
        "From rows to columns",
        "--mesh 4 --shape 4096x4096 --from S0 --to S1",
        "Each rank has a block of rows and is to have a block of columns. It keeps a quarter of what it holds and "
        "sends a quarter to each other rank: an all-to-all. Gathering the whole tensor and cutting columns out of "
        "it would send four times as much, and need three times the memory.",
    ),
    Exhibit(
        "partial-sums",
        "Reduce first, gather later",
        "--mesh dp=2,tp=4 --shape 4096x4096 --from S0,P --to R,S1",
        "A tensor-parallel layer leaves addends along tp and rows along dp; wanted are columns along tp, the same "
        "on every dp. The plan adds up while it scatters, so that the gather moves a quarter of the bytes. The "
        "direct exchange, in which every rank pulls all addends of its columns, needs one step instead of two, "
        "but 70 % more time.",
        moment=0.3,
    ),
    Exhibit(
        "small-tensors",
        "Small tensors go straight",
        "--mesh dp=2,tp=4 --shape 16x4096 --from S0,P --to R,S1",
        "The same question as before, for 16 rows. Now the base cost of a step counts more than bytes, and the "
        "direct exchange wins. `--sweep` finds the border between both answers: 73 rows.",
    ),
    Exhibit(
        "diagonal",
        "No detour through a gather",
        "--mesh dp=2,tp=4 --shape 4096x4096 --from S0,S1 --to S1,S0",
        "Both mesh dims change the tensor dim that they split. One dim at a time, as DTensor plans it, one of "
        "them has to be gathered first, and its ranks hold four times their share meanwhile. Pulling each box "
        "from where it lies takes one step and a fifth of the time.",
    ),
    Exhibit(
        "shard-order",
        "Who splits first",
        "--mesh dp=2,tp=4 --shape 4096x4096 --from S0,S0 --to S0.1,S0.0",
        "Both mesh dims split the rows; before, dp splits first, afterwards tp does. All ranks keep as many rows "
        "as they had, but six of the eight hold others. Sending each shard whole to its new rank is one step; but "
        "a rank then sends over one mesh dim and receives over the other, and a link carries both ways at once. "
        "Two all-to-alls through columns use it so, and are quicker although they send more.",
        moment=0.2,
    ),
    Exhibit(
        "two-hosts",
        "Cross the border once",
        "--mesh dp=2,tp=4 --devices-per-host 4 --shape 4096x4096 --from S0,S0 --to R,R",
        "Eight ranks on two hosts, and every one needs the whole tensor. A plain gather sends each shard over the "
        "slow network to all four ranks of the other host. The plan first deals columns out inside each host, so "
        "that only a quarter of the other half crosses to each rank, then gathers inside the host, where links "
        "are quick: 1032 instead of 1906 µs.",
        moment=0.26,
    ),
    Exhibit(
        "two-levels",
        "CPU ranks cross it once anyway",
        "--mesh dp=2,tp=4 --hosts 2x4 --shape 4096x4096 --from S0,S0 --to R,R",
        "The same question for CPU ranks, which move in two levels: a box that several ranks of a host want crosses to "
        "it once, and they share it through the host's memory. Dealing columns out first would gain nothing, so the "
        "plain gather wins, and half of the tensor crosses each way. DTensor's order gathers inside the hosts first; "
        "then every rank holds its host's half and fetches the other from a rank of its own: four times as much "
        "crosses, and it takes three times as long.",
    ),
    Exhibit(
        "memory-limit",
        "Slower, but it fits",
        "--mesh dp=2,tp=4 --shape 4096x4096 --from P,P --to R,R --max-memory 150MiB",
        "An all-reduce of 64 MiB keeps its input, its output and as much again for addends: 192 MiB. With at most "
        "150 MiB a rank the planner scatters the sums and gathers them in a step of its own, for 6.6 µs more. The "
        "alternatives say what each would have needed.",
        moment=0.22,
    ),
    Exhibit(
        "many-ranks",
        "Four thousand ranks",
        "--mesh dp=16,pp=16,tp=16 --shape 65536x65536 --from S0,S0,S1 --to S1,R,S0",
        "On 16x16x16 ranks a tile stands for 64 neighbours on the mesh and shows all that they hold. The one step "
        "is an exchange in which a rank takes its new box from sixteen others. DTensor's order, dim by dim, "
        "gathers 256 times what a rank had, and takes thirty times as long.",
    ),
)
