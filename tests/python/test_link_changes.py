"""Versions that the ranks of a link make without its hub, and what brings the hub back: somebody joins, leaves,
declares, is late, or makes a mistake."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from shardway._link.hub_store import HubStore
from tests.support.jobs import Place, free_ports, poisoned, run_jobs


def _count_questions(link: sw.JobLink) -> list[str]:
    """What this rank asks the hub from now on."""
    asked: list[str] = []
    connection = link._membership.connection
    ask = connection.ask

    def counted(question, deadline_s):
        asked.append(question["do"])
        return ask(question, deadline_s)

    connection.ask = counted
    return asked


def test_on_one_host_only_the_first_version_goes_by_the_hub():
    def train(place: Place) -> list[str]:
        weights = torch.zeros(4)
        with place.connect() as link:
            source = link.publish({"w": weights})
            asked = _count_questions(link)
            for version in range(1, 6):
                weights.fill_(version)
                assert source.send() == version
            assert link.explain()
            return list(asked)

    def generate(place: Place) -> list[str]:
        got = poisoned(4)
        with place.connect() as link:
            target = link.subscribe({"w": got})
            asked = _count_questions(link)
            for version in range(1, 6):
                assert target.receive() == version and bool((got == version).all())
            return list(asked)

    found = run_jobs({"trainer": (2, train), "generator": (2, generate)})
    assert found == {"trainer": [["send", "done"]] * 2, "generator": [["receive", "done"]] * 2}


def test_a_role_that_joins_leaves_or_declares_again_gets_the_versions_that_it_should():
    guests = multiprocessing.Semaphore(0)  # that are done
    last = multiprocessing.Value("q", sys.maxsize)  # the version after which the others may end

    def train(place: Place) -> int:
        weights = torch.zeros(4)
        with place.connect() as link:
            source = link.publish({"w": weights})
            while source.version < last.value:
                if place.rank == 0 and last.value == sys.maxsize and guests.acquire(block=False):
                    last.value = source.version + 3
                weights.fill_(source.version + 1)
                source.send()
                time.sleep(0.005)
            return source.version

    def stay(place: Place) -> list[int]:
        got, versions = poisoned(4), []
        with place.connect() as link:
            target = link.subscribe({"w": got})
            while not versions or versions[-1] < last.value:
                versions.append(target.receive())
                assert bool((got == versions[-1]).all())
        return versions

    def come_and_go(place: Place) -> int:
        place.await_holder()
        time.sleep(0.05)
        with place.connect() as link:
            for _ in range(3):
                got = poisoned(4)
                target = link.subscribe({"w": got})
                for _ in range(3):
                    version = target.receive()
                    assert bool((got == version).all())
        guests.release()
        return version

    found = run_jobs({"trainer": (2, train), "stays": (1, stay), "guest": (2, come_and_go)})
    assert found["trainer"] == [last.value] * 2 and found["guest"][0] == found["guest"][1]
    (versions,) = found["stays"]
    assert versions == list(range(versions[0], last.value + 1))


def test_who_is_late_for_a_version_without_the_hub_is_named_and_the_next_one_arrives():
    def train(place: Place) -> None:
        weights = torch.ones(4)
        with place.connect() as link:
            source = link.publish({"w": weights})
            usual, link._timeout = link._timeout, timedelta(seconds=3)  # that of the group, too
            assert [source.send(), source.send()] == [1, 2]
            start = time.monotonic()
            with pytest.raises(dist.DistBackendError, match=r"role generator rank 0 did not call receive"):
                source.send()
            assert 3 < time.monotonic() - start < 6
            link._timeout = usual
            weights.fill_(3.0)
            assert source.send() == 3

    def generate(place: Place) -> None:
        got = poisoned(4)
        with place.connect() as link:
            target = link.subscribe({"w": got})
            assert [target.receive(), target.receive()] == [1, 2]
            time.sleep(5)
            assert target.incomplete is None and bool((got == 1.0).all())
            assert target.receive() == 3 and bool((got == 3.0).all())

    run_jobs({"trainer": (1, train), "generator": (1, generate)})


def test_a_tensor_that_does_not_fit_is_refused_at_the_sender_and_the_link_goes_on():
    def train(place: Place) -> None:
        with place.connect() as link:
            source = link.publish({"w": torch.ones(4)})
            assert [source.send(), source.send()] == [1, 2]
            wrong = {"w": torch.ones(5 if place.rank == 1 else 4)}
            with pytest.raises(ValueError, match=r"w: it is not as it was published.*role trainer rank 1"):
                source.send(wrong)
            assert source.send({"w": torch.full((4,), 3.0)}) == 3

    def generate(place: Place) -> None:
        got = poisoned(4)
        with place.connect() as link:
            target = link.subscribe({"w": got})
            assert [target.receive() for _ in range(3)] == [1, 2, 3]
            assert bool((got == 3.0).all())

    run_jobs({"trainer": (2, train), "generator": (1, generate)})


# The store in which a joint group meets.


@contextmanager
def _meeting() -> Iterator[tuple[sw.JobLink, str]]:
    """A link, and the name of the meeting of its joint group, whose ranks never come."""
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"

    def subscribe() -> None:
        with Place(address, "generator", 0, 1).connect() as link:
            link.subscribe({"w": torch.empty(2)})
            subscribed.set()
            link._membership.connection.ask({"do": "receive"}, time.monotonic() + 15)
            is_over.wait()

    subscribed, is_over = threading.Event(), threading.Event()
    other = threading.Thread(target=subscribe)
    with Place(address, "trainer", 0, 1).connect() as link:
        link.publish({"w": torch.ones(2)})
        other.start()
        try:
            subscribed.wait(15)
            go = link._membership.connection.ask({"do": "send"}, time.monotonic() + 15)
            yield link, go["roster"]["store"]["meeting"]
        finally:
            is_over.set()
            other.join()


def _stores(link: sw.JobLink, meeting: str, count: int) -> list[HubStore]:
    return [HubStore(link._membership.visit(meeting, 5.0), timedelta(seconds=5)) for _ in range(count)]


def _use(store: dist.Store) -> list[object]:
    """What a caller sees of a store."""
    store.set("a", "1")
    seen: list[object] = [store.get("a"), store.add("n", 2), store.add("n", -5), store.get("n")]
    seen += [store.compare_set("new", "", "first"), store.compare_set("new", "other", "second")]
    seen += [store.compare_set("new", "first", "third"), store.compare_set("none", "x", "y")]
    seen += [store.check(["a", "n"]), store.check(["a", "b"]), store.delete_key("a"), store.delete_key("a")]
    prefixed = dist.PrefixStore("p", store)
    prefixed.set("bytes", bytes(range(256)).decode("latin-1"))
    return [*seen, prefixed.get("bytes"), store.num_keys()]


def test_the_store_of_the_hub_answers_as_those_of_torch_do():
    with _meeting() as (link, meeting):
        (store,) = _stores(link, meeting, 1)
        assert _use(store) == _use(dist.HashStore())


def test_who_waits_in_the_store_is_woken_by_a_value_a_timeout_or_the_end_of_the_meeting():
    with _meeting() as (link, meeting):
        waits, sets = _stores(link, meeting, 2)
        with pytest.raises(dist.DistStoreError, match=r"late was not set within 0\.2 s"):
            waits.wait(["late"], timedelta(seconds=0.2))
        sets.set("late", b"now")
        assert waits.get("late") == b"now"
        leaving = threading.Timer(0.1, link.close)
        leaving.start()
        start = time.monotonic()
        with pytest.raises(dist.DistStoreError, match="the meeting is over"):
            waits.wait(["never"], timedelta(seconds=5))
        assert time.monotonic() - start < 3
        leaving.join()


def test_a_meeting_is_open_to_members_that_know_its_name_alone():
    with _meeting() as (link, meeting):
        with pytest.raises(Exception, match="that meeting is over"):
            link._membership.visit("another", 5.0)
        link._membership._secret = b"another"
        with pytest.raises(Exception, match="the secret is not that of role trainer rank 0"):
            link._membership.visit(meeting, 5.0)
