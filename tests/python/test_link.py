"""Links between jobs: what one publishes lies in the destinations of the others."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from shardway._C import LinkHeldVersions, LinkTensors
from tests.support.jobs import Place, free_ports, poisoned, run_jobs
from tests.support.mesh_reference import Layouts, held, part, same_bits

ROWS, COLUMNS = 7, 6
REFITS = int(os.environ.get("SHARDWAY_REFITS", "12"))  # by number of ranks


def whole(version: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.arange(ROWS * COLUMNS) + 1000.0 * version).view(ROWS, COLUMNS).to(dtype)


def on(size: int, placement: sw.Placement, dtype: torch.dtype = torch.float32) -> sw.Layout:
    return sw.Layout((ROWS, COLUMNS), dtype, sw.Mesh((size,)), [placement])


def _send_rows(place: Place) -> list[int]:
    mine = torch.empty(*on(place.size, sw.Shard(0)).box(place.rank)[1])
    with place.connect() as link:
        source = link.publish({"w": sw.MeshTensor(mine, on(place.size, sw.Shard(0))), "bias": torch.ones(3)})
        versions = []
        for version in (1, 2, 3):
            mine.copy_(part(whole(version), held(on(place.size, sw.Shard(0)), place.rank)))
            versions.append(source.send())
        return versions


def _receive_into_views(place: Place) -> list[int]:
    """Columns, in a slice of a fused matrix that is transposed; its other half stays as it is."""
    layout = on(place.size, sw.Shard(1))
    columns = layout.box(place.rank)[1][1]
    fused, bias = poisoned(2 * columns, ROWS), poisoned(3)
    with place.connect() as link:
        target = link.subscribe({"w": sw.MeshTensor(fused[columns:].T, layout), "bias": bias})
        assert target.version == 0 and target.incomplete == "nothing has been received"
        versions = []
        for version in (1, 2, 3):
            versions.append(target.receive())
            assert torch.equal(fused[columns:].T, part(whole(version), held(layout, place.rank)))
            assert fused[:columns].isnan().all() and torch.equal(bias, torch.ones(3))
            assert target.version == version and target.incomplete is None
        return versions


@pytest.mark.parametrize("first", ["trainer", "generator"])
@pytest.mark.parametrize("ranks", [(1, 1), (2, 3)], ids=str)
def test_versions_arrive_in_views_whichever_job_comes_first(first, ranks):
    def late(place: Place, body):
        time.sleep(0.0 if place.role == first else 0.3)
        return body(place)

    jobs = {
        "trainer": (ranks[0], lambda place: late(place, _send_rows)),
        "generator": (ranks[1], lambda place: late(place, _receive_into_views)),
    }
    found = run_jobs(jobs)
    assert all(versions == [1, 2, 3] for some in found.values() for versions in some)


class _Refit:
    """A model that every rank draws from one seed, with the layouts of both sides, a view and a dtype per
    destination."""

    def __init__(self, seed: int, trainers: int, generators: int) -> None:
        self.random = random.Random(seed)
        there, here = Layouts(seed, trainers), Layouts(seed + 1, generators)
        self.pairs = {f"t{i}": there.pair(ops=()) for i in range(self.random.randint(1, 6))}
        self.targets = {
            name: here.layout(pair.before.shape, self._dtype(pair.before.dtype), here.mesh(), {})
            for name, pair in self.pairs.items()
        }
        self.views = {name: self.random.choice(("plain", "transposed", "strided")) for name in self.pairs}

    def _dtype(self, dtype: torch.dtype) -> torch.dtype:
        return torch.bfloat16 if dtype in (torch.float32, torch.float64) and self.random.random() < 0.5 else dtype

    def destination(self, name: str, rank: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """A buffer, and the view of it."""
        layout, view = self.targets[name], self.views[name]
        if rank not in layout.mesh.ranks:
            return torch.empty(0), None
        shape = [len(indices) for indices in held(layout, rank)]
        if view == "plain" or not shape:
            buffer = torch.empty(shape, dtype=layout.dtype)
            return _fill(buffer), buffer
        if view == "transposed":
            buffer = torch.empty(shape[::-1], dtype=layout.dtype)
            return _fill(buffer), buffer.permute(*reversed(range(len(shape))))
        buffer = torch.empty([*shape[:-1], 2 * shape[-1] + 1], dtype=layout.dtype)
        return _fill(buffer), buffer[..., 1::2]


def _fill(buffer: torch.Tensor) -> torch.Tensor:
    """A NaN where the dtype has one."""
    if buffer.dtype != torch.bool and buffer.numel():
        buffer.view(-1).view(torch.uint8).fill_(0xFF)
    return buffer


def _publish_refit(place: Place, seed: int, generators: int) -> None:
    refit = _Refit(seed, place.size, generators)
    with place.connect() as link:
        given = {name: sw.MeshTensor(p.input(place.rank), p.before) for name, p in refit.pairs.items()}
        source = link.publish(given)
        assert [source.send(), source.send()] == [1, 2]  # the second without the hub


def _receive_refit(place: Place, seed: int, trainers: int) -> None:
    refit = _Refit(seed, trainers, place.size)
    made = {name: refit.destination(name, place.rank) for name in refit.pairs}
    with place.connect() as link:
        given = {name: sw.MeshTensor(view, refit.targets[name]) for name, (_, view) in made.items()}
        target = link.subscribe(given, cast=True)
        for version in (1, 2):
            assert target.receive() == version
            for name, (buffer, view) in made.items():
                if view is not None:
                    _check_destination(f"seed {seed} {name}", refit, name, place.rank, buffer, view)
                _fill(buffer)


@pytest.mark.parametrize("trainers, generators", [(2, 3), (3, 1), (1, 2)])
def test_random_models_lie_in_poisoned_views_as_one_process_would_put_them(trainers, generators):
    first = random.randrange(1 << 30)
    print(f"seeds from {first}")
    places = [(first + i, f"tcp://127.0.0.1:{port}") for i, port in enumerate(free_ports(REFITS))]

    def publish(place: Place) -> None:
        for seed, address in places:
            _publish_refit(replace(place, address=address), seed, generators)

    def receive(place: Place) -> None:
        for seed, address in places:
            _receive_refit(replace(place, address=address), seed, trainers)

    run_jobs({"trainer": (trainers, publish), "generator": (generators, receive)})


def _packed(view: torch.Tensor) -> torch.Tensor:
    return view.clone(memory_format=torch.contiguous_format)


def _check_destination(what, refit, name, rank, buffer, view):
    wanted = part(refit.pairs[name].whole(), held(refit.targets[name], rank)).to(view.dtype)
    assert same_bits(_packed(view), wanted), f"{what}: {view} instead of {wanted}"
    if refit.views[name] == "strided" and view.dim() and buffer.numel() and buffer.dtype != torch.bool:
        outside = _packed(buffer[..., 0::2])
        assert (outside.view(torch.uint8) == 0xFF).all(), f"{what}: written outside the view"


def _publish_a_stage(place: Place) -> None:
    """Rank 0 has the first layer, rank 1 the second, both have the norm."""
    with place.connect() as link:
        source = link.publish({f"layer{place.rank}": whole(place.rank), "norm": torch.full((2,), 5.0)})
        assert source.send() == 1


def _receive_all_stages(place: Place) -> None:
    got = {"layer0": poisoned(ROWS, COLUMNS), "layer1": poisoned(ROWS, COLUMNS), "norm": poisoned(2)}
    with place.connect() as link:
        link.subscribe(got).receive()
    assert torch.equal(got["layer0"], whole(0)) and torch.equal(got["layer1"], whole(1))
    assert torch.equal(got["norm"], torch.full((2,), 5.0))


def test_ranks_publish_different_names_and_their_union_is_the_model():
    run_jobs({"trainer": (2, _publish_a_stage), "generator": (1, _receive_all_stages)})


def _publish_dtensors(place: Place, port: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    method = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=method, rank=place.rank, world_size=place.size)
    weight = distribute_tensor(whole(1), init_device_mesh("cpu", (place.size,)), [Shard(0)])
    with sw.connect(place.address, "trainer", secret="open", timeout=10) as link:
        source = link.publish({"w": torch.nn.Parameter(weight)})
        assert source.send() == 1
        other = distribute_tensor(whole(2), weight.device_mesh, [Shard(0)])
        assert source.send({"w": other}) == 2
        with pytest.raises(ValueError, match=r"w: it is not as it was published.*rank 1"):
            source.send({"w": whole(2)} if place.rank == 1 else None)
        assert source.send() == 3
    dist.destroy_process_group()


def _receive_three(place: Place) -> None:
    got = poisoned(ROWS, COLUMNS, dtype=torch.bfloat16)
    with place.connect() as link:
        target = link.subscribe({"w": got}, cast=True)
        for value in (1, 2, 2):
            target.receive()
            assert torch.equal(got, whole(value).to(torch.bfloat16))


def test_dtensors_of_a_job_with_a_process_group_go_to_one_without_and_storages_may_be_replaced():
    (port,) = free_ports(1)
    run_jobs({"trainer": (2, lambda place: _publish_dtensors(place, port)), "generator": (1, _receive_three)})


def _send_without_waiting(place: Place) -> None:
    weights = torch.empty(ROWS, COLUMNS)
    with place.connect() as link:
        source = link.publish({"w": weights})
        for version in range(1, 6):
            weights.copy_(whole(version))
            assert source.send(wait=False) == version
            assert source.version >= version - 2  # two are held
            weights.fill_(float("nan"))  # what is under way was copied
        weights.copy_(whole(6))
        assert source.send() == 6 == source.version
        weights.copy_(whole(7))
        assert source.send(wait=False) == 7  # arrives before the link is closed


def _receive_slowly(place: Place) -> None:
    got = poisoned(ROWS, COLUMNS)
    with place.connect() as link:
        target = link.subscribe({"w": got})
        for version in range(1, 8):
            time.sleep(0.02)
            assert target.receive() == version and torch.equal(got, whole(version))


def test_a_send_that_does_not_wait_holds_two_versions_and_all_arrive_in_order():
    run_jobs({"trainer": (2, _send_without_waiting), "generator": (2, _receive_slowly)})


def test_what_is_held_is_a_copy_whatever_the_views_and_sizes():
    """Together they are larger than a cache, so that most of them go past it."""
    matrix = torch.arange(2.0**22).view(2048, 2048)
    parts = [
        matrix,
        matrix.t(),
        matrix[5:9, 3:],
        matrix[::2, 1::3].bfloat16(),
        torch.tensor(7),
        torch.empty(0, 3),
        torch.randn(300, dtype=torch.complex64).conj(),
        torch.ones(4, requires_grad=True),
    ]
    named = {str(number): part for number, part in enumerate(parts)}
    versions = LinkHeldVersions()
    versions.add(LinkTensors({**named, "elsewhere": None}), SECOND)
    held = versions.next()
    assert held is not None
    for name, given in named.items():
        assert torch.equal(held[name], given)
        assert given.numel() == 0 or held[name].data_ptr() != given.data_ptr()


SECOND = timedelta(seconds=1)


def test_two_versions_are_held_and_the_third_takes_the_place_of_the_one_that_was_sent():
    versions = LinkHeldVersions()
    for number in (1.0, 2.0):
        versions.add(LinkTensors({"w": torch.full((3,), number)}), SECOND)
    assert versions.bytes == 24
    first = versions.next()
    assert first is not None and first["w"].tolist() == [1.0] * 3
    place = first["w"].data_ptr()
    versions.done(first, KeyError("on the way"))
    with pytest.raises(KeyError, match="on the way"):
        versions.add(LinkTensors({"w": torch.zeros(3)}), SECOND)
    versions.add(LinkTensors({"w": torch.full((3,), 3.0)}), SECOND)
    second, third = versions.next(), versions.next()
    assert second is not None and second["w"].tolist() == [2.0] * 3 and second["w"].data_ptr() != place
    assert third is not None and third["w"].tolist() == [3.0] * 3 and third["w"].data_ptr() == place
    versions.done(third, None)
    with pytest.raises(ValueError, match=r"a part of shape \[2\] is held in one of shape \[3\]"):
        versions.add(LinkTensors({"w": torch.zeros(2)}), SECOND)
    versions.close()
    assert versions.next() is None


def _publish_and_explain(place: Place) -> tuple[sw.ModelPlan, str]:
    weights = {
        "rows": sw.MeshTensor(torch.ones(on(2, sw.Shard(0)).box(place.rank)[1]), on(2, sw.Shard(0))),
        "whole": torch.ones(5, dtype=torch.float64),
    }
    with place.connect() as link:
        source = link.publish(weights)
        with pytest.raises(ValueError, match="plan: it is made with the next version"):
            source.explain()
        source.send(wait=False)
        source.send()
        return source.plan, source.explain()


def _receive_and_explain(place: Place) -> tuple[sw.ModelPlan, str]:
    layout = on(2, sw.Shard(1))
    columns = torch.zeros(layout.box(place.rank)[1], dtype=torch.float32)
    with place.connect() as link:
        target = link.subscribe({"rows": sw.MeshTensor(columns, layout), "whole": torch.zeros(5)}, cast=True)
        assert [target.receive(), target.receive()] == [1, 2]
        return target.plan, link.explain()


def test_the_plan_of_a_model_has_the_bytes_of_each_pair_and_no_more_than_must_move():
    found = run_jobs({"trainer": (2, _publish_and_explain), "generator": (2, _receive_and_explain)})
    rows, half, whole = (
        (4, 3),
        COLUMNS // 2 * 4,
        5 * 8,
    )  # rows of each trainer; bytes of a generator's row and of "whole"
    for plan, text in (*found["trainer"], *found["generator"]):
        received = [sum(row[rank] for row in plan.bytes) for rank in range(4)]
        assert received == list(plan.least_bytes) == [0, 0, ROWS * half + whole, ROWS * half + whole]
        for generator in (2, 3):
            sent = [plan.bytes[trainer][generator] for trainer in (0, 1)]
            assert sorted(s - r * half for s, r in zip(sent, rows, strict=True)) == [0, whole]
        assert plan.busiest_rank in range(4) and plan.roles == (("trainer", 2), ("generator", 2)) and plan.tensors == 2
        assert "ranks 0-1: role trainer\nranks 2-3: role generator\n" in text and "the least possible" in text
    for rank in (0, 1):
        assert found["trainer"][rank][0].held_bytes == rows[rank] * COLUMNS * 4 + whole
        assert (
            found["generator"][rank][0].staging_bytes == whole
            and f"{whole} B for other dtypes" in found["generator"][rank][1]
        )


def test_a_failed_send_that_did_not_wait_is_raised_by_the_next_call():
    place = Place(f"tcp://127.0.0.1:{free_ports(1)[0]}", "trainer", 0, 1)
    with place.connect() as link:
        source = link.publish({"w": torch.ones(2)})
        link._timeout = timedelta(seconds=0.5)
        assert source.send(wait=False) == 1
        time.sleep(1)
        with pytest.raises(dist.DistBackendError, match="no job subscribed"):
            source.send(wait=False)


LEAVES = """
import sys, torch, shardway as sw
link = sw.connect(sys.argv[1], "trainer", 0, 1, secret="open", timeout=30)
source = link.publish({"w": torch.ones(4)})
assert [source.send(wait=False), source.send(wait=False)] == [1, 2]
"""


def test_a_program_may_end_while_versions_are_held():
    """Often enough to meet the interpreter's end wherever the thread is."""
    addresses = [f"tcp://127.0.0.1:{port}" for port in free_ports(4)]
    programs = [subprocess.Popen([sys.executable, "-c", LEAVES, address]) for address in addresses]
    assert [program.wait(60) for program in programs] == [0] * len(programs)


def test_a_part_of_several_ranks_can_be_made_where_nothing_is_distributed_and_not_be_moved():
    t = sw.MeshTensor(torch.ones(4, COLUMNS), on(2, sw.Shard(0)))
    assert t.rank == -1 and t.box is None and t.local.shape == (4, COLUMNS) and t.group is None
    assert sw.MeshTensor(None, on(1, sw.Shard(0))).local is None
    for moved in (lambda: sw.redistribute(t, [sw.Replicate()]), lambda: sw.redistribute([t], [[sw.Replicate()]])):
        with pytest.raises(ValueError, match=r"which is not its box of .*\(rank -1\)"):
            moved()
    assert sw.MeshTensor(torch.ones(ROWS, COLUMNS), on(1, sw.Shard(0))).rank == 0


def test_between_hosts_the_link_moves_by_gloo(two_hosts):
    def enter(index: int, count: int) -> None:
        host = two_hosts[0 if index < 2 else 1]
        host.enter()
        os.environ["GLOO_SOCKET_IFNAME"] = host.interface

    jobs = {"trainer": (2, _send_rows), "generator": (2, _receive_into_views)}
    found = run_jobs(jobs, address=f"tcp://{two_hosts[0].address}:29700", enter=enter)
    assert all(versions == [1, 2, 3] for some in found.values() for versions in some)
