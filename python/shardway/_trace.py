"""A trace of all ranks of a run, for Perfetto and chrome://tracing."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import torch.distributed as dist

from shardway import _C
from shardway._clocks import ClockOffset, now_ns, offsets_of_hosts
from shardway._files import write_whole
from shardway._groups import GroupLike, resolve_group

_current: Trace | None = None


class Trace:
    """A trace that is being kept. A context manager: the end of the block stops it.

    `trace` makes it.

    Attributes:
        path: The file into which this rank writes.
    """

    def __init__(self, path: Path, run: str, origin_ns: int, clock: ClockOffset, rank: int, size: int) -> None:
        self.path = path
        self._run = run
        self._origin_ns = origin_ns
        self._clock = clock
        self._rank = rank
        self._size = size
        self._pid = os.getpid()
        self._is_stopped = False
        _C.start_trace()
        atexit.register(self._stop_at_exit)

    def stop(self) -> None:
        """Adds this rank's calls to the file. Local; a second call does nothing. Raises OSError if it cannot write."""
        global _current
        if self._is_stopped or os.getpid() != self._pid:
            return
        self._is_stopped = True
        _current = None
        atexit.unregister(self._stop_at_exit)
        taken = _C.take_trace()
        with _locked(self.path.parent):
            document = _document_at(self.path, self._run) or self._empty_document()
            document["traceEvents"] += self._events(taken)
            document["otherData"]["ranks"] = sorted([*document["otherData"]["ranks"], self._rank])
            document["otherData"]["left_out"] += taken["left_out"]
            write_whole(self.path, json.dumps(document), 0o644)

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _stop_at_exit(self) -> None:
        try:
            self.stop()
        except OSError as error:
            print(f"shardway: the trace of rank {self._rank} could not be written: {error}", file=sys.stderr)

    def _empty_document(self) -> dict[str, Any]:
        return {
            "displayTimeUnit": "ns",
            "otherData": {
                "run": self._run,
                "size": self._size,
                "ranks": [],
                "left_out": 0,
                "clock_ahead_ns": self._clock.ahead_ns,
                "clock_within_ns": self._clock.within_ns,
            },
            "traceEvents": [],
        }

    def _events(self, taken: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """What the file says of this rank: its name, and a slice for each call and step. Times are in microseconds."""
        name = {"name": f"rank {self._rank} (pid {self._pid})"}
        yield {"ph": "M", "name": "process_name", "pid": self._rank, "args": name}
        yield {"ph": "M", "name": "process_sort_index", "pid": self._rank, "args": {"sort_index": self._rank}}
        for step in taken["steps"]:
            measured_us = (step["ended_ns"] - step["begun_ns"]) / 1e3
            told = {"bytes": step["bytes"], "modelled_us": step["modelled_us"], "measured_us": measured_us}
            yield self._slice("step", step["name"], step, told)
        for call in taken["calls"]:
            told = {key: call[key] for key in ("number", "rank", "size", "bytes", "state")}
            yield self._slice("call", call["op"], call, {**told, "group": f"{call['group']:x}"})

    def _slice(self, kind: str, name: str, times: dict[str, Any], told: dict[str, Any]) -> dict[str, Any]:
        return {
            "ph": "X",
            "cat": kind,
            "name": name,
            "pid": self._rank,
            "tid": times["thread"],
            "ts": (times["begun_ns"] - self._origin_ns) / 1e3,
            "dur": (times["ended_ns"] - times["begun_ns"]) / 1e3,
            "args": told,
        }


def trace(path: str | os.PathLike[str], *, group: GroupLike = None) -> Trace:
    """Keeps a trace of this run, and writes it to `path` as JSON that ui.perfetto.dev and chrome://tracing show.

    Collective over `group`. Each rank adds its part when it stops: at the end of a `with` block, by `.stop()`, or when
    the process exits. The file is whole as soon as a rank has stopped, and has all ranks when the last one has;
    `otherData.ranks` names those that are in it. A rank that is killed is missing.

    A rank is a process of the trace, a call a slice with its number, bytes and state, a step of a redistribute a
    slice around its calls with bytes, the modelled time and the measured one. All ranks of a host have one clock.
    Each further host has another, and a file of its own: trace.host1.json, trace.host2.json, … Its times are those of
    the first host's clock. How far the clocks are apart is measured when the trace begins; rank 0 prints what was
    found and how exact that is, and the files say it too (`otherData.clock_ahead_ns`, `clock_within_ns`).

    Args:
        path: The file. All ranks name the same one; that of an earlier run is replaced.
        group: Whose ranks are in the trace; None is the default group, or this process alone without one.

    Returns:
        The trace that is being kept; use it in a `with` block, or stop it.

    Raises:
        ValueError: The file cannot be written, a trace is being kept already, or ranks differ; on every rank.

    Example:
        >>> with sw.trace("trace.json"):
        ...     _ = sw.all_reduce(torch.ones(3))
    """
    global _current
    target = Path(path).absolute()
    rank, size, told = _tell_all(target, group)
    for other, said in enumerate(told):
        if said["problem"]:
            raise ValueError(f"trace: {said['problem']} (rank {other})")
        if said["path"] != told[0]["path"]:
            raise ValueError(f"trace: rank {other} gave {said['path']}, and rank 0 {told[0]['path']}")
    of_ranks = [said["host"] for said in told]
    hosts = list(dict.fromkeys(of_ranks))
    host = hosts.index(of_ranks[rank])
    clock = _clocks_of(hosts, of_ranks, group)[host]
    if host > 0:
        target = target.with_name(f"{target.stem}.host{host}{target.suffix}")
    run = told[of_ranks.index(hosts[host])]["run"]
    _current = Trace(target, run, told[0]["now_ns"] + clock.ahead_ns, clock, rank, size)
    return _current


def _clocks_of(hosts: list[str], of_ranks: list[str], group: GroupLike) -> list[ClockOffset]:
    """How far each host's clock is ahead of the first one's."""
    members = resolve_group(group, "trace")
    if members is None or len(hosts) == 1:
        return [ClockOffset(0, 0)]
    firsts = [of_ranks.index(host) for host in hosts]
    clocks = offsets_of_hosts(members, firsts)
    if members.rank() == 0:
        for first, clock in zip(firsts[1:], clocks[1:], strict=True):
            ahead = f"{abs(clock.ahead_ns) / 1e9:.6f} s {'ahead of' if clock.ahead_ns >= 0 else 'behind'}"
            print(
                f"shardway: trace: the clock of rank {first}'s host is {ahead} that of rank 0's, to within "
                f"{clock.within_ns / 1e3:.0f} us",
                file=sys.stderr,
            )
    return clocks


def _tell_all(target: Path, group: GroupLike) -> tuple[int, int, list[dict[str, Any]]]:
    """This rank, the number of ranks, and what each says: by rank."""
    own = {
        "path": str(target),
        "problem": _problem_with(target),
        "host": _own_host(),
        "run": uuid.uuid4().hex,
        "now_ns": now_ns(),
    }
    members = resolve_group(group, "trace")
    if members is None:
        return 0, 1, [own]
    told: list[Any] = [None] * members.size()
    dist.all_gather_object(told, own, group=members)
    return members.rank(), members.size(), told


def _own_host() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _problem_with(target: Path) -> str:
    if _current is not None:
        return f"{_current.path} is being written; stop that trace first"
    if target.is_dir():
        return f"{target} is a folder"
    if not os.access(target.parent, os.W_OK):
        return f"{target.parent} is not a folder that can be written"
    return ""


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Ranks add their parts one after another."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _document_at(path: Path, run: str) -> dict[str, Any] | None:
    """What other ranks of this run have written; nothing of another run."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        document = json.loads(path.read_text())
        if document["otherData"]["run"] == run:
            return dict(document)
    return None
