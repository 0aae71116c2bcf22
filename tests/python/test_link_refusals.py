"""Links between jobs: who is admitted, and what all ranks are told of models that differ."""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import replace
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from shardway._link.overlap import overlaps
from tests.support.jobs import Place, free_ports, poisoned, run_jobs

ROWS, COLUMNS = 7, 6
WEIGHT = torch.arange(1.0 * ROWS * COLUMNS).view(ROWS, COLUMNS)


# What differs.


def _publish_another_model(place: Place) -> str:
    with place.connect(timeout=6) as link:
        source = link.publish({"w": WEIGHT, "x": torch.ones(3), "mine": torch.ones(2)})
        with pytest.raises(ValueError) as found:
            source.send()
        assert source.send() == 1  # to one that has learnt
    return str(found.value)


def _subscribe_wrongly_first(place: Place) -> str:
    shared = poisoned(4)
    with place.connect(timeout=6) as link:
        wrong = {"w": poisoned(ROWS, 5), "x": shared[:3].double(), "yours": shared[:2], "too": shared[1:]}
        with pytest.raises(ValueError) as found:
            link.subscribe(wrong)
        right = {"w": poisoned(ROWS, COLUMNS), "x": poisoned(3), "mine": poisoned(2)}
        assert link.subscribe(right).receive() == 1
        assert torch.equal(right["w"], WEIGHT)
    return str(found.value)


def test_every_difference_is_in_one_error_on_all_ranks_of_both_sides():
    found = run_jobs({"trainer": (2, _publish_another_model), "generator": (2, _subscribe_wrongly_first)})
    for text in (*found["trainer"], *found["generator"]):
        assert "what role generator subscribes to: 7 differences" in text
        for line in (
            "w: the shapes differ: published float32[7,6] whole on role trainer ranks 0-1, "
            "subscribed float32[7,5] whole on role generator ranks 0-1",
            "x: the dtypes differ, and cast=True is not given",
            "mine: float32[2] whole on role trainer ranks 0-1, but role generator does not subscribe to it",
            "yours: float32[2] whole on role generator ranks 0-1, but role trainer does not publish it",
            "too: the destination overlaps that of yours (role generator rank 0)",
            "too: the destination overlaps that of yours (role generator rank 1)",
        ):
            assert line in text


def _declare(place: Place, what: dict[str, object], call: str = "publish") -> str:
    with place.connect(timeout=6) as link, pytest.raises(ValueError) as found:
        getattr(link, call)(what)
    return str(found.value)


def test_ranks_of_a_role_that_disagree_are_all_told():
    layout = sw.Layout((ROWS, COLUMNS), torch.float32, sw.Mesh((2,)), [sw.Shard(0)])

    def declare(place: Place) -> str:
        local = torch.ones(*layout.box(place.rank)[1])
        named = {"w": sw.MeshTensor(local, layout)} if place.rank == 0 else {}
        several = {"same": torch.ones(2 + place.rank), "bad": [1.0]} if place.rank else {"same": torch.ones(2)}
        return _declare(place, {**named, **several})

    for text in run_jobs({"trainer": (2, declare)})["trainer"]:
        assert "w: role trainer rank 1 of its mesh did not name it" in text
        assert "same: float32[2] whole on role trainer rank 0, float32[3] whole on rank 1" in text
        assert "bad: it is a list, not a DTensor, MeshTensor or Tensor (role trainer rank 1)" in text


def test_ranks_of_a_role_that_call_different_things_are_told():
    def call(place: Place) -> str:
        return _declare(place, {"w": torch.ones(2)}, ["publish", "subscribe"][place.rank])

    for text in run_jobs({"trainer": (2, call)})["trainer"]:
        assert "the ranks of role trainer differ: rank 0 called publish, rank 1 called subscribe" in text


def test_views_that_interleave_do_not_overlap_and_those_that_share_an_element_do():
    fused = torch.zeros(6, 4)
    assert overlaps({"left": fused[:, :2], "right": fused[:, 2:], "other": torch.zeros(3)}) == []
    assert overlaps({"even": fused[::2], "odd": fused[1::2].T}) == []
    assert overlaps({"rows": fused[:2], "column": fused[:, 3]}) == ["column: the destination overlaps that of rows"]
    assert overlaps({"bytes": fused.view(torch.uint8)[0, :4], "first": fused[0, :1]}) == [
        "first: the destination overlaps that of bytes"
    ]
    assert overlaps({"wide": fused[0, :1].expand(3)}) == ["wide: elements of the destination overlap one another"]
    assert overlaps({"empty": fused[:0], "all": fused}) == []


# Who is admitted.


def _wait_alone(place: Place, message: str, timeout: float = 1.0) -> None:
    with pytest.raises(dist.DistBackendError, match=message):
        place.connect(timeout=timeout)


def test_a_rank_that_never_comes_is_named():
    start = time.monotonic()
    for rank in (0, 1):
        place = Place(f"tcp://127.0.0.1:{free_ports(1)[0]}", "trainer", rank, 3)
        why = "role trainer ranks 1-2 did not connect" if rank == 0 else "Connection refused"
        _wait_alone(place, rf"connect: waited for 1 s: .*{why}.*role trainer rank {rank}")
    assert time.monotonic() - start < 6


def test_who_never_sends_or_receives_is_named():
    def train(place: Place) -> None:
        with place.connect() as link:
            source = link.publish({"w": torch.ones(2)})
            usual, link._timeout = link._timeout, timedelta(seconds=1)
            with pytest.raises(dist.DistBackendError, match="send: waited for 1 s: no job subscribed"):
                source.send()
            link._timeout = usual
            assert source.send() == 1

    def generate(place: Place) -> None:
        time.sleep(1.5)
        with place.connect() as link:
            target = link.subscribe({"w": torch.zeros(2)})
            assert target.receive() == 1
            link._timeout = timedelta(seconds=1)
            with pytest.raises(dist.DistBackendError, match=r"the publisher is gone|did not call send|holds the link"):
                target.receive()

    run_jobs({"trainer": (2, train), "generator": (1, generate)})


def test_another_secret_another_size_and_a_second_job_are_refused():
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    first = Place(address, "trainer", 0, 1)
    with first.connect() as link:
        for other, options, message in (
            (replace(first, role="generator"), {"secret": "another"}, "the secret is not that of role trainer rank 0"),
            (replace(first, rank=1, size=2), {}, "role has 2 ranks, but role trainer rank 0 said 1"),
            (first, {"timeout": 1.0}, r"role trainer rank 0 is taken by process \d+ on"),
        ):
            with pytest.raises(ValueError, match=message):
                other.connect(**options)
        assert not link._ended


@pytest.mark.parametrize(
    "options, message",
    [
        ({"address": "udp://x:1"}, "is not like tcp://"),
        ({"address": "tcp://127.0.0.1"}, "is not like tcp://"),
        ({"role": ""}, "role='' is not a name"),
        ({"rank": 2, "size": 2}, "rank=2 is not a rank of size=2"),
        ({"timeout": 0}, "timeout=0 is not positive"),
        ({"secret": 5}, "secret is a int"),
    ],
)
def test_a_bad_argument_is_refused_at_once(options, message):
    given = {"address": "tcp://127.0.0.1:1", "role": "trainer", "rank": 0, "size": 1, **options}
    with pytest.raises(ValueError, match=message):
        sw.connect(**given)


def test_strangers_hold_nobody_up_and_the_secret_does_not_travel():
    (port,) = free_ports(1)
    place = Place(f"tcp://127.0.0.1:{port}", "trainer", 0, 1)
    with place.connect(secret="hush") as link, contextlib.ExitStack() as strangers:
        for said in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\x00\x00\x00\x02[]", b"\x00\x00\x00\x02{}"):
            stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", port)))
            stranger.sendall(said)
        heard = strangers.enter_context(socket.create_connection(("127.0.0.1", port))).recv(1000)
        assert b"shardway_link" in heard and b"hush" not in heard
        assert link.publish({"w": torch.ones(1)}).version == 0


def test_another_version_of_the_wire_form_is_named(monkeypatch):
    place = Place(f"tcp://127.0.0.1:{free_ports(1)[0]}", "trainer", 0, 1)
    with place.connect():
        monkeypatch.setattr("shardway._link.member.VERSION", 3)
        with pytest.raises(ValueError, match="speaks version 2 of the link, this process version 3"):
            replace(place, role="generator").connect()


def test_what_listens_there_must_be_a_link():
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = Place(f"tcp://127.0.0.1:{other.getsockname()[1]}", "generator", 1, 2)
        with pytest.raises(dist.DistBackendError, match="connect: waited for 1 s"):
            place.connect(timeout=1)
