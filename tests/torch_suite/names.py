"""What the suite is told of its surroundings."""

from __future__ import annotations

import os

WORLD = 3
HOST_OF = (0, 1, 0)  # of each rank, where there are two hosts


class Named(str):
    """The name of our backend, which also answers to gloo's: the suite asks for it where the CPU's ways part."""

    def __eq__(self, other: object) -> bool:
        return other == "gloo" or str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash("gloo")


OURS = Named("shardway")


def announce(gate: str) -> None:
    os.environ.update(BACKEND=gate, WORLD_SIZE=str(WORLD), GLOO_SOCKET_IFNAME="lo")
