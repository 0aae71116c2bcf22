"""Stops a rank for a moment, now and then: nobody may notice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from contextlib import suppress

from tests.soak.notice import Notice
from tests.soak.script import Script
from tests.stress.crew import Member, Minder

LONGEST_STOP_S = 0.1
LONGEST_PAUSE_S = 0.5


class Stops(Minder):
    pause_s = 0.02

    def __init__(self, script: Script, notice: Notice) -> None:
        self.made = 0
        self._script = script
        self._notice = notice
        self._dice = random.Random(script.seed)
        self._stopped: int | None = None
        self._next = time.monotonic()

    def look(self, crew: Sequence[Member]) -> None:
        now = time.monotonic()
        if now < self._next or not crew:
            return
        if self._stopped is not None:
            _signal(self._stopped, signal.SIGCONT)
            self._stopped = None
            self._next = now + self._dice.uniform(0, LONGEST_PAUSE_S)
        elif self.made < self._script.stops and not self._notice.struck:
            self._stopped = self._dice.choice(crew).pid
            _signal(self._stopped, signal.SIGSTOP)
            self.made += 1
            self._next = now + self._dice.uniform(0, LONGEST_STOP_S)

    def was_killed(self, rank: int) -> bool:
        return rank in self._script.victims and self._notice.struck > 0


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
