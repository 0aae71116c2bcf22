"""The peer of bench/jax_reshard.py: JAX with several CPU devices in one process, run by an environment of its own.

Reads a line of JSON with the mesh, the two shardings, the side of the tensor and the number of calls, and answers with
one: the microseconds of each call by each of JAX's two ways. It knows nothing of this project.
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from typing import Any

import jax
import numpy
from jax.sharding import NamedSharding, PartitionSpec

WARM_UPS, ALIVE = 2, 3


def answer(task: dict[str, Any]) -> dict[str, list[float]]:
    mesh = jax.make_mesh(tuple(task["mesh"]), tuple("ab"[: len(task["mesh"])]))
    before, after = (NamedSharding(mesh, PartitionSpec(*task[key])) for key in ("before", "after"))
    side = task["side"]
    whole = (numpy.arange(side * side) % 997).astype(numpy.float32).reshape(side, side)
    x = jax.device_put(whole, before)
    next_input = jax.jit(lambda x: x + 1, out_shardings=before)
    ways = {
        "jit": jax.jit(lambda x: x, out_shardings=after),
        "device_put": lambda x: jax.device_put(x, after),
    }
    return {name: _times_us(way, x, next_input, whole, after, task["calls"]) for name, way in ways.items()}


def _times_us(way: Any, x: Any, next_input: Any, whole: Any, after: Any, calls: int) -> list[float]:
    kept: deque[Any] = deque(maxlen=ALIVE)
    times = []
    for number in range(WARM_UPS + calls):
        x = next_input(x).block_until_ready()
        began = time.perf_counter_ns()
        out = way(x).block_until_ready()
        took_us = (time.perf_counter_ns() - began) / 1e3
        kept.append(out)
        if number >= WARM_UPS:
            times.append(took_us)
    assert kept[-1].sharding.is_equivalent_to(after, 2)
    assert numpy.array_equal(numpy.asarray(kept[-1]), whole + numpy.float32(WARM_UPS + calls))
    return times


def main() -> None:
    jax.config.update("jax_num_cpu_devices", int(sys.argv[1]))
    print(json.dumps({"jax": jax.__version__, "devices": len(jax.devices())}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
