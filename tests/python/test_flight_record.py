"""The last calls in the format of torch's flight recorder: torch's own analyser reads them."""

from __future__ import annotations

import datetime
import functools
import os
import pickle
import re
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import shardway as sw
from tests.support.forked_programs import run_forked
from tests.support.ranks import ranks, run_ranks

LIMIT_S = 60


def analysed(folder: Path) -> str:
    """What torch's analyser says of the files in a folder."""
    found = run_forked(["-m", "torch.distributed.flight_recorder.fr_trace", folder], timeout_s=LIMIT_S)
    assert found.returncode == 0, found.stderr
    return found.stdout + found.stderr


@ranks(3)
def test_a_file_has_what_last_calls_gives(rank, size, tmp_path):
    sw.all_reduce(torch.ones(5))
    sw.all_gather_v(torch.ones(rank + 1), sizes=[1, 2, 3])
    path = sw.dump_last_calls(tmp_path / "calls_")
    assert path == str(tmp_path / f"calls_{rank}")
    found = pickle.loads(Path(path).read_bytes())
    assert found["version"] == "2.10"
    calls = [call for call in sw.last_calls() if call["number"] > 0]
    entries = found["entries"]
    assert [entry["collective_seq_id"] for entry in entries] == [call["number"] for call in calls]
    assert [entry["frames"][0]["name"].split(",")[0] for entry in entries] == [call["op"] for call in calls]
    assert [entry["profiling_name"] for entry in entries] == ["nccl:all_reduce", "nccl:all_gather_v"]
    assert entries[0]["input_sizes"] == entries[0]["output_sizes"] == [[20]]
    assert {entry["state"] for entry in entries} == {"completed"}
    assert all(entry["retired"] and not entry["is_p2p"] for entry in entries)
    name, description = entries[0]["process_group"]
    assert found["pg_config"][name] == {"name": name, "desc": description, "ranks": "[0, 1, 2]"}
    assert found["pg_status"][str(entries[0]["pg_id"])]["last_completed_collective"] == calls[-1]["number"]
    now = datetime.datetime.now().timestamp()
    assert abs(entries[0]["time_created_ns"] * 1e-9 - now) < LIMIT_S


@ranks(3)
def test_a_group_of_some_ranks_has_their_numbers_in_the_job(rank, size, tmp_path):
    sw.all_reduce(torch.ones(5))
    pair = dist.new_group([0, 2])
    if rank != 1:
        sw.all_reduce(torch.ones(5), group=pair)
    dist.barrier()
    found = pickle.loads(Path(sw.dump_last_calls(tmp_path / "calls_")).read_bytes())
    dist.barrier()
    groups = {config["ranks"] for config in found["pg_config"].values()}
    assert groups == {"[0, 1, 2]"} if rank == 1 else {"[0, 1, 2]", "[0, 2]"}


@ranks(1)
def test_a_process_without_a_call_writes_an_empty_file(rank, size, tmp_path):
    found = pickle.loads(Path(sw.dump_last_calls(tmp_path / "calls_")).read_bytes())
    assert found["entries"] == []


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        sw.dump_last_calls(tmp_path / "nowhere" / "calls_")


def _enter(store: Path, transport: str, rank: int, size: int) -> None:
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "SHARDWAY_TRANSPORT": transport}
    limit = datetime.timedelta(seconds=3)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=limit)


def _call_another_op(rank, size, prefix):
    for _ in range(3):
        sw.all_gather_v(torch.ones(rank + 1), sizes=[1, 2, 3])
    with pytest.raises((ValueError, dist.DistBackendError)):
        if rank == 2:
            sw.all_reduce(torch.ones(size, 100_000))
        else:
            sw.all_gather_v(torch.ones(rank + 1), sizes=[1, 2, 3])
    sw.dump_last_calls(prefix)


@pytest.mark.parametrize("transport", ["shm", "c10d"])
def test_torchs_analyser_names_the_rank_that_called_another_op(tmp_path, transport):
    folder = tmp_path / "dumps"
    folder.mkdir()
    enter = functools.partial(_enter, tmp_path / "store", transport)
    run_ranks(3, _call_another_op, str(folder / "rank_"), enter=enter)
    said = analysed(folder)
    assert "Collective sequence number: 4 has errors" in said, said
    # The analyser begins with any rank, and calls those that differ from it the culprits.
    culprits = set(re.findall(r"Culprit rank (\d); Error type: COLLECTIVE_TYPE_MISMATCH", said))
    assert culprits in ({"2"}, {"0", "1"}), said
    assert "does not match found collective type: 'all_" in said, said


@ranks(3)
def test_torchs_analyser_finds_nothing_where_ragged_calls_go_well(rank, size, tmp_path):
    x = torch.ones(rank + 1, 4, requires_grad=True)
    gathered, sizes = sw.all_gather_v(x)
    sw.reduce_scatter_v(gathered, sizes).sum().backward()
    sw.all_to_all_v(torch.ones(size * 2), [2] * size)
    sw.broadcast(torch.ones(3))
    sw.gather_v(torch.ones(rank), dst=0)
    sw.dump_last_calls(tmp_path / "rank_")
    dist.barrier()
    if rank == 0:
        said = analysed(tmp_path)
        assert "mismatch" not in said.lower() and "Not all ranks" not in said, said
        assert "has errors" not in said, said
    dist.barrier()


def _wait_for_nobody(rank, size, folder):
    os.environ["TORCH_FR_DUMP_TEMP_FILE"] = f"{folder}/rank_"
    sw.all_reduce(torch.ones(3))
    if rank == 1:
        time.sleep(6)  # longer than the timeout
        return
    with pytest.raises(dist.DistBackendError):
        sw.all_reduce(torch.ones(3))
    found = pickle.loads(Path(f"{folder}/rank_{rank}").read_bytes())
    assert found["entries"][-1]["state"] == "started"


@pytest.mark.parametrize("transport", ["shm", "c10d"])
def test_a_timeout_leaves_the_file_where_torch_is_told_to(tmp_path, transport):
    run_ranks(3, _wait_for_nobody, str(tmp_path), enter=functools.partial(_enter, tmp_path / "store", transport))
    assert sorted(path.name for path in tmp_path.glob("rank_*")) == ["rank_0", "rank_2"]
