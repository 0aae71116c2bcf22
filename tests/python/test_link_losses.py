"""Ranks and jobs that die on a link: the others are told, and the next version arrives whole."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import signal
import time

import pytest
import torch
import torch.distributed as dist

from shardway._link.joint import JointGroup
from tests.support.jobs import Place, in_a_child, poisoned, run_jobs

WHOLE = (torch.arange(42) + 1000.0).view(7, 6)


def _die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _then_die(function):
    def run(*args, **kwargs):
        function(*args, **kwargs)
        _die()

    return run


def _die_in_the_copy(function):
    def run(*args, **kwargs):
        signal.setitimer(signal.ITIMER_REAL, 0.004)  # whose signal ends a process
        function(*args, **kwargs)
        _die()

    return run


def _replace(name: str, change):
    return lambda: setattr(JointGroup, name, change(getattr(JointGroup, name)))


# What a victim does to itself before its first send or receive, which go by the hub,
FIRST = {
    "group": _replace("__init__", lambda _: _die),
    "prepare": _replace("_prepare", lambda _: _die),
    "prepared": _replace("_prepare", _then_die),
}
# or before its second, which the ranks make alone.
SECOND = {
    "idle": _die,
    "vote": _replace("_all_say", lambda _: _die),
    "voted": _replace("_all_say", _then_die),
    "move": _replace("_run_moves", lambda _: _die),
    "copy": _replace("_run_moves", _die_in_the_copy),
    "moved": _replace("_run_moves", _then_die),
    "done": _replace("try_version", _then_die),
}
MOMENTS = {**FIRST, **SECOND}
BIG = 1 << 22  # elements


def _train_until_lost(place: Place, value: float, prepare) -> None:
    weights = torch.full((BIG,), value)
    with place.connect(timeout=6) as link:
        source = link.publish({"w": weights})
        _use_until_lost(source.send, prepare)


def _generate_until_lost(place: Place, prepare) -> None:
    with place.connect(timeout=6) as link:
        target = link.subscribe({"w": torch.empty(BIG)})
        _use_until_lost(target.receive, prepare)


def _use_until_lost(call, prepare) -> None:
    """`prepare`, of a victim, sees to its death in what follows; without it, another rank of the job is the victim."""
    with contextlib.nullcontext() if prepare is not None else pytest.raises(dist.DistBackendError):
        if prepare not in FIRST.values():
            assert call() == 1
        if prepare is not None:
            prepare()
        call()
        assert prepare is None, "the victim lives"
        call()


def _lose_and_come_back(place: Place, victim: int, moment: str, run, again) -> None:
    """A rank of the job that loses a rank and is started again."""
    if place.rank == victim:
        assert in_a_child(lambda: run(place, MOMENTS[moment])) in (signal.SIGKILL, signal.SIGALRM)
    else:
        run(place, None)
    again(place)


def _survive(call, errors: list[str]) -> int:
    try:
        return call()
    except dist.DistBackendError as error:
        errors.append(str(error))
    assert len(errors) < 3, errors
    return _survive(call, errors)


@pytest.mark.parametrize(
    "victim, moment", [*((1, moment) for moment in MOMENTS), *((0, moment) for moment in ("group", *SECOND))]
)
def test_a_trainer_that_dies_and_comes_back_sends_the_next_version_whole(victim, moment):
    def again(place: Place) -> None:
        with place.connect(timeout=15) as link:
            link.publish({"w": torch.full((BIG,), 7.0)}).send()

    def train(place: Place) -> None:
        _lose_and_come_back(place, victim, moment, lambda at, prepare: _train_until_lost(at, 1.0, prepare), again)

    def generate(place: Place) -> None:
        got, errors, states = poisoned(BIG), [], []
        place.await_holder()
        with place.connect(timeout=15) as link:
            target = link.subscribe({"w": got})

            def receive() -> int:
                try:
                    return target.receive()
                finally:
                    states.append(target.incomplete)

            if moment in SECOND:
                assert target.receive() == 1 and bool((got == 1.0).all())
            version = _survive(receive, errors)
            while bool((got == 1.0).all()):  # the last version of the first trainer was whole here when it died
                version = _survive(receive, errors)
            if moment in ("idle", "vote"):
                assert states[0] is None, states  # nothing was written
            if moment in ("group", "prepare", "move"):
                assert re.match(r"version \d did not arrive: ", states[0]), states
            assert version > (moment in SECOND) and target.version == version and target.incomplete is None
        assert bool((got == 7.0).all())
        assert 1 <= len(errors) <= 2 and re.search(rf"trainer rank {victim}", errors[0]), errors

    run_jobs({"trainer": (2, train), "generator": (1, generate)})


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_generator_that_dies_and_comes_back_gets_the_next_version_whole(moment):
    def again(place: Place) -> None:
        got = poisoned(BIG)
        with place.connect(timeout=15) as link:
            target = link.subscribe({"w": got})
            assert target.receive() > (moment in SECOND)
        assert bool((got == 2.0).all())

    def generate(place: Place) -> None:
        _lose_and_come_back(place, 1, moment, _generate_until_lost, again)

    def train(place: Place) -> None:
        weights, errors = torch.full((BIG,), 1.0), []
        with place.connect(timeout=15) as link:
            source = link.publish({"w": weights})
            assert moment not in SECOND or source.send() == 1
            assert moment != "done" or source.send() == 2  # it had arrived
            weights.fill_(2.0)
            assert _survive(source.send, errors) == source.version > (moment in SECOND)
        assert len(errors) == 1 and "role generator rank 1" in errors[0], errors

    run_jobs({"trainer": (2, train), "generator": (2, generate)})


def test_a_replica_that_dies_costs_the_other_nothing():
    are_subscribed = multiprocessing.Barrier(3)

    def train(place: Place) -> None:
        with place.connect() as link:
            source = link.publish({"w": WHOLE})
            are_subscribed.wait(30)
            with pytest.raises(dist.DistBackendError, match="version 1 did not arrive whole: role b rank 0 died"):
                source.send()
            assert source.send() == 2

    def serve(place: Place) -> None:
        got = poisoned(*WHOLE.shape)
        place.await_holder()
        with place.connect() as link:
            target = link.subscribe({"w": got})
            are_subscribed.wait(30)
            version = _survive(target.receive, [])
            if version == 1:
                assert torch.equal(got, WHOLE)
                version = target.receive()
            assert version == 2 and torch.equal(got, WHOLE)

    def die(place: Place) -> None:
        place.await_holder()
        with place.connect() as link:
            target = link.subscribe({"w": poisoned(*WHOLE.shape)})
            are_subscribed.wait(30)
            MOMENTS["prepared"]()
            target.receive()

    run_jobs({"trainer": (1, train), "a": (1, serve), "b": (1, die)}, dying=[("b", 0)])


def test_an_exception_that_ends_the_block_is_told_as_a_loss():
    def train(place: Place) -> None:
        with place.connect(timeout=20) as link:
            source = link.publish({"w": torch.ones(2)})
            assert source.send() == 1
            with pytest.raises(dist.DistBackendError, match="a subscriber is gone: role generator rank 1"):
                source.send()

    def generate(place: Place) -> None:
        place.await_holder()
        with pytest.raises(KeyError if place.rank == 1 else dist.DistBackendError), place.connect(timeout=20) as link:
            target = link.subscribe({"w": poisoned(2)})
            assert target.receive() == 1
            if place.rank == 1:
                raise KeyError("of the caller's own")
            target.receive()

    run_jobs({"trainer": (1, train), "generator": (2, generate)})


def test_a_forked_child_does_not_hide_the_death_of_the_process_that_holds_the_link():
    def train(place: Place) -> None:
        def hold() -> None:
            link = place.connect()
            link.publish({"w": torch.ones(2)}).send()
            if os.fork() == 0:
                with pytest.raises(ValueError, match="of process"):
                    link.publish({"w": torch.ones(2)})
                time.sleep(3)
                os._exit(0)
            _die()

        in_a_child(hold)

    def generate(place: Place) -> None:
        place.await_holder()
        with place.connect() as link:
            target = link.subscribe({"w": torch.ones(2)})
            target.receive()
            start = time.monotonic()
            with pytest.raises(dist.DistBackendError, match="role trainer rank 0, which holds the link, is gone"):
                target.receive()
            assert time.monotonic() - start < 2

    run_jobs({"trainer": (1, train), "generator": (1, generate)})
