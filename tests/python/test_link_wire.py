"""What travels on a link, byte for byte. Jobs of other builds read it, on other torches: whoever changes these bytes
gives them another version (`VERSION` in _link/wire.py)."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from shardway._link.declaration import Declared
from shardway._link.wire import VERSION, packed
from tests.support.jobs import Place, free_ports
from tests.two_torches.job import DTYPES


class _ByHand:
    """A member that knows nothing of the package."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)

    def say(self, text: str) -> None:
        body = text.encode()
        self.socket.sendall(bytes([0, 0, len(body) >> 8, len(body) & 255]) + body)

    def hear(self) -> str:
        length = int.from_bytes(self._exactly(4), "big")
        return self._exactly(length).decode()

    def _exactly(self, count: int) -> bytes:
        heard = b""
        while len(heard) < count:
            some = self.socket.recv(count - len(heard))
            assert some, "the connection was closed"
            heard += some
        return heard


def _admitted(member: _ByHand, secret: bytes) -> None:
    hello = json.loads(member.hear())
    assert hello == {"shardway_link": 2, "nonce": hello["nonce"]} and len(hello["nonce"]) == 32
    mine = "00112233445566778899aabbccddeeff"
    claim = '{"role": "generator", "rank": 0, "size": 1, "process": "by hand", "job": ""}'
    said = f'"{hello["nonce"]}", "{mine}", {claim}, null'
    shown = hmac.new(secret, f'["member", {said}]'.encode(), hashlib.sha256).hexdigest()
    member.say(f'{{"shardway_link": 2, "nonce": "{mine}", "claim": {claim}, "proof": "{shown}"}}')
    welcome = json.loads(member.hear())
    assert welcome["proof"] == hmac.new(secret, f'["hub", {said}]'.encode(), hashlib.sha256).hexdigest()
    assert welcome["is"] == "welcome" and welcome["hub"]["role"] == "trainer"


def test_a_member_written_by_hand_takes_part():
    assert VERSION == 2
    port = free_ports(1)[0]
    with Place(f"tcp://127.0.0.1:{port}", "trainer", 0, 1).connect(secret="open") as link:
        source = link.publish({"w": torch.ones(2, 3, dtype=torch.bfloat16)})
        errors: list[str] = []

        def send() -> None:
            with pytest.raises(dist.DistBackendError) as raised:
                source.send()
            errors.append(str(raised.value))

        member = _ByHand(port)
        _admitted(member, b"open")
        member.say('{"do": "join"}')
        assert member.hear() == '{"is":"joined"}'
        member.say(
            '{"do": "subscribe", "tensors": {"w": {"shape": [2, 3], "dtype": "bfloat16"}}, "problems": [], '
            '"cast": false, "version": 0}'
        )
        assert member.hear() == '{"is":"subscribed","version":0}'
        sending = threading.Thread(target=send)
        sending.start()
        member.say('{"do": "receive"}')
        go = json.loads(member.hear())
        del go["roster"]["store"], go["generation"]
        whole = (
            '{"shape": [2, 3], "dtype": "bfloat16", "mesh_shape": [1], "mesh": [0], "placements": [["R"]], '
            '"order": [[], []]}'
        )
        models = f'{{"trainer": {{"w": {whole}}}, "generator": {{"w": {whole}}}}}'
        roster = f'{{"source": "trainer", "roles": [["trainer", 1], ["generator", 1]], "models": {models}}}'
        assert go == json.loads(f'{{"is": "go", "version": 1, "roster": {roster}}}')
        member.socket.close()  # which tears the version
        sending.join()
    assert len(errors) == 1 and "role generator rank 0" in errors[0], errors


def test_a_declaration_has_these_bytes():
    mesh = sw.Mesh((2, 2), names=("dp", "tp"))
    layout = sw.Layout((4, 6), torch.float32, mesh, [sw.Shard(0, (1, 3)), sw.Shard(0)])
    summed = sw.Layout((3,), torch.float16, sw.Mesh((4,)), [sw.Partial()])
    tensors = {
        "uneven": sw.MeshTensor(torch.zeros(layout.box(0)[1]), layout),
        "summed": sw.MeshTensor(torch.zeros(3, dtype=torch.float16), summed),
        "whole": torch.zeros((), dtype=torch.int64),
    }
    body = (
        '{"do":"publish","tensors":{'
        '"uneven":{"shape":[4,6],"dtype":"float32","mesh_shape":[2,2],"mesh":[0,1,2,3],'
        '"placements":[["S",0,[1,3]],["S",0,null]],"order":[[0,1],[]]},'
        '"summed":{"shape":[3],"dtype":"float16","mesh_shape":[4],"mesh":[0,1,2,3],"placements":[["P","sum"]],'
        '"order":[[]]},'
        '"whole":{"shape":[],"dtype":"int64"}},"problems":[],"cast":false,"version":0}'
    )
    said = packed(Declared(tensors, 0, 4).said("publish"))
    assert said[4:].decode() == body
    assert said[:4] == bytes([0, 0, len(body) >> 8, len(body) & 255])


def test_a_dtype_travels_by_its_name():
    tensors = {name: torch.empty(0, dtype=getattr(torch, name)) for name in DTYPES}
    entries = Declared(tensors, 0, 1).said("publish")["tensors"]
    assert {name: entry["dtype"] for name, entry in entries.items()} == {name: name for name in DTYPES}
