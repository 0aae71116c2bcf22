"""Two public models: what their checkpoints name, and how an inference engine fuses it.

The figures are those of the config.json that is published with the weights. `scaled` makes a model of the same
proportions that fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from shardway.refit import Entry, Fused, Piece, Stacked


@dataclass(frozen=True)
class Config:
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_width: int
    inner: int  # of an expert, where there are some
    vocabulary: int
    experts: int = 0
    has_head_norms: bool = False

    def scaled(self, layers: int, by: int, heads_by: int, *, experts: int = 0, vocabulary_by: int = 0) -> Config:
        """With widths divided by `by`, heads by `heads_by`: a head's width by what is left of `by`, or by the same."""
        return replace(
            self,
            layers=layers,
            hidden=self.hidden // by,
            heads=self.heads // heads_by,
            kv_heads=self.kv_heads // heads_by,
            head_width=self.head_width * heads_by // by,
            inner=self.inner // by,
            vocabulary=self.vocabulary // (vocabulary_by or by),
            experts=experts,
        )


LLAMA_3_8B = Config("Llama-3-8B", 32, 4096, 32, 8, 128, 14336, 128256)
QWEN3_30B_A3B = Config("Qwen3-30B-A3B", 48, 2048, 32, 4, 128, 768, 151936, experts=128, has_head_norms=True)


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Of the checkpoint, by the names of Hugging Face."""
    hidden, width = config.hidden, config.head_width
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocabulary, hidden)}
    for layer in range(config.layers):
        at = f"model.layers.{layer}"
        found[f"{at}.input_layernorm.weight"] = (hidden,)
        found[f"{at}.self_attn.q_proj.weight"] = (config.heads * width, hidden)
        found[f"{at}.self_attn.k_proj.weight"] = (config.kv_heads * width, hidden)
        found[f"{at}.self_attn.v_proj.weight"] = (config.kv_heads * width, hidden)
        found[f"{at}.self_attn.o_proj.weight"] = (hidden, config.heads * width)
        if config.has_head_norms:
            found[f"{at}.self_attn.q_norm.weight"] = (width,)
            found[f"{at}.self_attn.k_norm.weight"] = (width,)
        found[f"{at}.post_attention_layernorm.weight"] = (hidden,)
        if config.experts:
            found[f"{at}.mlp.gate.weight"] = (config.experts, hidden)
        for mlp in _mlps(config, at):
            found[f"{mlp}.gate_proj.weight"] = (config.inner, hidden)
            found[f"{mlp}.up_proj.weight"] = (config.inner, hidden)
            found[f"{mlp}.down_proj.weight"] = (hidden, config.inner)
    found["model.norm.weight"] = (hidden,)
    found["lm_head.weight"] = (config.vocabulary, hidden)
    return found


def _mlps(config: Config, at: str) -> Iterator[str]:
    if not config.experts:
        yield f"{at}.mlp"
    for expert in range(config.experts):
        yield f"{at}.mlp.experts.{expert}"


def engine_table(config: Config, ranks: int) -> dict[str, Entry]:
    """How a tensor-parallel engine keeps the model: q, k and v in one matrix, gate and up in one, experts in stacks.
    The vocabulary is padded so that the ranks have equal parts."""
    of = shapes(config)
    rows = -(-config.vocabulary // ranks) * ranks

    def whole(name: str) -> Piece:
        return Piece(name, of[name], split=None)

    def piece(name: str, split: int = 0, units: int | None = None) -> Piece:
        return Piece(name, of[name], split, units)

    table: dict[str, Entry] = {}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        table[name] = Piece(name, of[name], padded=rows)
    for layer in range(config.layers):
        at = f"model.layers.{layer}"
        heads = {"q": config.heads, "k": config.kv_heads, "v": config.kv_heads}
        table[f"{at}.qkv"] = Fused([piece(f"{at}.self_attn.{x}_proj.weight", units=n) for x, n in heads.items()])
        table[f"{at}.o"] = piece(f"{at}.self_attn.o_proj.weight", 1, config.heads)
        gate_up = [
            Fused([piece(f"{mlp}.gate_proj.weight"), piece(f"{mlp}.up_proj.weight")]) for mlp in _mlps(config, at)
        ]
        down = [piece(f"{mlp}.down_proj.weight", 1) for mlp in _mlps(config, at)]
        table[f"{at}.w13"] = Stacked(gate_up) if config.experts else gate_up[0]
        table[f"{at}.w2"] = Stacked(down) if config.experts else down[0]
    table |= {name: whole(name) for name in of if "norm" in name or name.endswith(".mlp.gate.weight")}
    return table


def engine_shapes(config: Config, ranks: int) -> dict[str, tuple[int, ...]]:
    """Of what one rank of the engine has, for the names of `engine_table`."""
    of = shapes(config)
    kv_heads = max(config.kv_heads // ranks, 1)
    inner, stack = config.inner // ranks, (config.experts,) if config.experts else ()
    found = {name: of[name] for name in of if "norm" in name or name.endswith(".mlp.gate.weight")}
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        found[name] = (-(-config.vocabulary // ranks), config.hidden)
    for layer in range(config.layers):
        at = f"model.layers.{layer}"
        found[f"{at}.qkv"] = ((config.heads // ranks + 2 * kv_heads) * config.head_width, config.hidden)
        found[f"{at}.o"] = (config.hidden, config.heads // ranks * config.head_width)
        found[f"{at}.w13"] = (*stack, 2 * inner, config.hidden)
        found[f"{at}.w2"] = (*stack, config.hidden, inner)
    return found
