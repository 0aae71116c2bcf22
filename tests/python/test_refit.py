"""Models that move to the fused tensors of an engine, by a declared table: two public configurations, scaled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import shardway as sw
from shardway.refit import Fused, Piece, Stacked, destinations
from tests.support.jobs import Place, poisoned, run_jobs
from tests.support.models import LLAMA_3_8B, QWEN3_30B_A3B, Config, engine_shapes, engine_table, shapes

LLAMA = LLAMA_3_8B.scaled(2, by=64, heads_by=4, vocabulary_by=501)  # 8 heads of 8 with 2 for k and v, 224 inside
QWEN = QWEN3_30B_A3B.scaled(2, by=32, heads_by=4, experts=8, vocabulary_by=587)  # k and v have one head for all ranks


def whole(config: Config, name: str, version: int) -> torch.Tensor:
    """Every element of the model has a number of its own, so that none can take another's place."""
    of = shapes(config)
    before = sum(torch.Size(shape).numel() for other, shape in of.items() if other < name)
    numbers = torch.arange(torch.Size(of[name]).numel()) + before
    return (numbers * 4 + version).view(of[name]).double()


# The trainer.


def sharded(config: Config, name: str, place: Place) -> sw.MeshTensor:
    """As FSDP shards: rows, in chunks of which the last may be short or empty."""
    layout = sw.Layout(shapes(config)[name], torch.float64, sw.Mesh((place.size,)), [sw.Shard(0)])
    return sw.MeshTensor(torch.empty(layout.box(place.rank)[1], dtype=torch.float64), layout)


def fill_sharded(config: Config, name: str, place: Place, local: torch.Tensor, version: int) -> None:
    chunks = whole(config, name, version).chunk(place.size)
    if place.rank < len(chunks):
        local.copy_(chunks[place.rank])


def train_fsdp(place: Place, config: Config) -> None:
    parts = {name: sharded(config, name, place) for name in shapes(config)}
    with place.connect() as link:
        source = link.publish(parts)
        for version in (1, 2):
            for name, t in parts.items():
                fill_sharded(config, name, place, t.local, version)
            assert source.send() == version


def train_expert_parallel(place: Place, config: Config) -> None:
    """A rank has some experts whole, in stacks, and rows of the rest."""
    parts = {name: sharded(config, name, place) for name in shapes(config) if ".experts." not in name}
    stacks, table = {}, {}
    mine = [e.tolist() for e in torch.arange(config.experts).tensor_split(place.size)][place.rank]
    for layer in range(config.layers):
        for kind in ("gate_proj", "up_proj", "down_proj"):
            names = [f"model.layers.{layer}.mlp.experts.{e}.{kind}.weight" for e in range(config.experts)]
            shape = shapes(config)[names[0]]
            stacks[f"{layer}.{kind}"] = torch.empty(len(mine), *shape, dtype=torch.float64)
            table[f"{layer}.{kind}"] = Stacked([Piece(name, shape) for name in names], spread=True)
    experts = destinations(table, stacks, rank=place.rank, size=place.size)
    with place.connect() as link:
        source = link.publish({**parts, **experts})
        for version in (1, 2):
            for name, t in parts.items():
                fill_sharded(config, name, place, t.local, version)
            for key, stack in stacks.items():
                layer, kind = key.split(".")
                for index, expert in enumerate(mine):
                    name = f"model.layers.{layer}.mlp.experts.{expert}.{kind}.weight"
                    stack[index].copy_(whole(config, name, version))
            assert source.send() == version


# The generator, and what its rank has if one process makes it.


def engine_weights(config: Config, rank: int, ranks: int, version: int) -> dict[str, torch.Tensor]:
    def weight(name: str) -> torch.Tensor:
        return whole(config, name, version).to(torch.float32)

    def heads(name: str, count: int) -> torch.Tensor:
        """Those of this rank; its one head where there are fewer than ranks."""
        by_head = weight(name).view(count, config.head_width, config.hidden)
        each = max(count // ranks, 1)
        first = rank * count // ranks
        return by_head[first : first + each].reshape(-1, config.hidden)

    def gate_up(mlp: str) -> torch.Tensor:
        return torch.cat([weight(f"{mlp}.{kind}_proj.weight").chunk(ranks)[rank] for kind in ("gate", "up")])

    def down(mlp: str) -> torch.Tensor:
        return weight(f"{mlp}.down_proj.weight").chunk(ranks, dim=1)[rank]

    found = {name: weight(name) for name in shapes(config) if "norm" in name or name.endswith(".mlp.gate.weight")}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        padding = poisoned(-config.vocabulary % ranks, config.hidden)
        found[name] = torch.cat([weight(name), padding]).chunk(ranks)[rank]
    for layer in range(config.layers):
        at = f"model.layers.{layer}"
        counts = {"q": config.heads, "k": config.kv_heads, "v": config.kv_heads}
        found[f"{at}.qkv"] = torch.cat([heads(f"{at}.self_attn.{x}_proj.weight", n) for x, n in counts.items()])
        found[f"{at}.o"] = weight(f"{at}.self_attn.o_proj.weight").chunk(ranks, dim=1)[rank]
        mlps = [f"{at}.mlp.experts.{e}" for e in range(config.experts)]
        found[f"{at}.w13"] = torch.stack([gate_up(mlp) for mlp in mlps]) if mlps else gate_up(f"{at}.mlp")
        found[f"{at}.w2"] = torch.stack([down(mlp) for mlp in mlps]) if mlps else down(f"{at}.mlp")
    return found


def generate(place: Place, config: Config) -> None:
    engine = {name: poisoned(*shape) for name, shape in engine_shapes(config, place.size).items()}
    table = engine_table(config, place.size)
    places = destinations(table, engine, rank=place.rank, size=place.size)
    assert places.keys() == shapes(config).keys()
    with place.connect() as link:
        target = link.subscribe(places, cast=True)
        for version in (1, 2):
            assert target.receive() == version
            wanted = engine_weights(config, place.rank, place.size, version)
            assert wanted.keys() == engine.keys()
            for name, tensor in engine.items():
                torch.testing.assert_close(tensor, wanted[name], rtol=0, atol=0, equal_nan=True, msg=name)


@pytest.mark.parametrize(
    "config, train, ranks",
    [
        pytest.param(LLAMA, train_fsdp, (3, 2), id="dense, FSDP to tensor parallel"),
        pytest.param(LLAMA, train_fsdp, (1, 4), id="dense, heads of k and v on two ranks each"),
        pytest.param(QWEN, train_expert_parallel, (3, 2), id="mixture of experts, expert to tensor parallel"),
    ],
)
def test_a_model_lies_in_the_fused_tensors_of_an_engine_as_one_process_puts_it(
    config: Config, train: Callable[[Place, Config], None], ranks: tuple[int, int]
):
    trainer, generator = ranks
    run_jobs(
        {"trainer": (trainer, lambda p: train(p, config)), "generator": (generator, lambda p: generate(p, config))}
    )


def test_the_models_are_the_public_ones():
    """Parameters as their authors count them: 8.03 and 30.5 billion."""
    for config, count in ((LLAMA_3_8B, 8_030_261_248), (QWEN3_30B_A3B, 30_532_122_624)):
        assert sum(torch.Size(shape).numel() for shape in shapes(config).values()) == count


# Tables.


def test_units_that_are_fewer_than_ranks_are_repeated_on_neighbours():
    piece = Piece("k", (4, 3), units=2)
    boxes = [destinations({"k": piece}, {"k": torch.empty(2, 3)}, rank=r, size=4)["k"].layout.box(r) for r in range(4)]
    assert boxes == [((0, 0), (2, 3)), ((0, 0), (2, 3)), ((2, 0), (2, 3)), ((2, 0), (2, 3))]


def test_a_padded_vocabulary_ends_where_the_tensor_does():
    table = {"embed": Piece("e", (5, 2), padded=9)}
    for rank, rows in enumerate((3, 2, 0)):
        place = destinations(table, {"embed": torch.empty(3, 2)}, rank=rank, size=3)["e"]
        assert place.layout.box(rank) == ((min(3 * rank, 5), 0), (rows, 2)) and place.local.shape == (rows, 2)


def test_a_spread_stack_has_whole_parts_and_the_first_ranks_have_one_more():
    parts = [Fused([Piece(f"w1.{e}", (4, 2)), Piece(f"w3.{e}", (4, 2))]) for e in range(3)]
    table = {"w13": Stacked(parts, spread=True)}
    stack = torch.arange(2 * 8 * 2.0).view(2, 8, 2)
    found = destinations(table, {"w13": stack}, rank=0, size=2)
    assert list(found) == ["w1.0", "w3.0", "w1.1", "w3.1"]
    assert torch.equal(found["w3.1"].local, stack[1, 4:]) and found["w3.1"].layout.mesh.ranks == (0,)
    assert list(destinations(table, {"w13": stack[:1]}, rank=1, size=2)) == ["w1.2", "w3.2"]
    assert destinations(table, {"w13": stack[:0]}, rank=3, size=4) == {}


@pytest.mark.parametrize(
    "entry, shape, words",
    [
        (Piece("w", (6, 2)), (2, 2), r"it has shape \(2, 2\) on rank 0, but its parts need \(3, 2\)"),
        (Piece("w", (9, 2), units=3), (5, 2), "w: 3 units can neither be shared out to 2 ranks nor repeated"),
        (Piece("w", (9, 2), units=2), (5, 2), "w: its length 9 is not a multiple of units=2"),
        (Piece("w", (9, 2), split=2), (5, 2), r"w: split=2 is out of range for the shape \(9, 2\)"),
        (Piece("w", (9, 2), padded=9), (5, 2), "w: padded=9 must be at least its length 9 and a multiple of 2 ranks"),
        (Fused([]), (5, 2), "a Fused has no parts"),
        (Fused([Piece("w", (4, 2)), Piece("v", (4, 3))]), (4, 2), "parts of a Fused differ in other dims than 0"),
        (Fused([Piece("w", (4, 2))], dim=2), (4, 2), "dim=2 of a Fused is out of range"),
        (Fused([Piece("w", (4, 2)), Piece("w", (4, 2))]), (4, 2), "w has two places"),
        (Stacked([Piece("w", (4, 2)), Piece("v", (2, 2))]), (2, 4, 2), "parts of a stack have different shapes"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_every_reason(entry, shape, words):
    with pytest.raises(ValueError, match=words) as found:
        destinations({"fused": entry, "none": Piece("x", (2,))}, {"fused": torch.empty(shape)}, rank=0, size=2)
    assert "none: the table has it, but the tensors have not" in str(found.value)
