"""A Llama of two layers that every process draws from a version's number: its configuration, and its weights by the
names of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor

LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, WORDS = 2, 128, 192, 4, 2, 128
CONFIGURATION = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HIDDEN // HEADS,
    "vocab_size": WORDS,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}
PROMPTS = ([5, 17, 42, 99], [7, 3, 120], [64, 64, 11, 90, 8, 31])
NEW_WORDS = 12
VERSIONS = (1, 2)


def write_configuration(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIGURATION))


def shapes() -> dict[str, tuple[int, ...]]:
    head = HIDDEN // HEADS
    layer = {
        "input_layernorm.weight": (HIDDEN,),
        "self_attn.q_proj.weight": (HEADS * head, HIDDEN),
        "self_attn.k_proj.weight": (KV_HEADS * head, HIDDEN),
        "self_attn.v_proj.weight": (KV_HEADS * head, HIDDEN),
        "self_attn.o_proj.weight": (HIDDEN, HEADS * head),
        "post_attention_layernorm.weight": (HIDDEN,),
        "mlp.gate_proj.weight": (INNER, HIDDEN),
        "mlp.up_proj.weight": (INNER, HIDDEN),
        "mlp.down_proj.weight": (HIDDEN, INNER),
    }
    layers = {f"model.layers.{i}.{name}": shape for i in range(LAYERS) for name, shape in layer.items()}
    return {
        "model.embed_tokens.weight": (WORDS, HIDDEN),
        **layers,
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (WORDS, HIDDEN),
    }


def weights(version: int) -> dict[str, Tensor]:
    """Large enough that the next word is seldom a close call."""
    random = torch.Generator().manual_seed(version)
    return {
        name: torch.randn(shape, generator=random) * (1.0 if len(shape) == 1 else 0.2)
        for name, shape in shapes().items()
    }


def served(version: int, rank: int, size: int) -> dict[str, Tensor]:
    """What a worker of vLLM has of them: fused, and split over `size` workers by heads, rows or columns."""
    whole = weights(version)

    def rows(name: str) -> Tensor:
        return whole[name].chunk(size, 0)[rank]

    def columns(name: str) -> Tensor:
        return whole[name].chunk(size, 1)[rank]

    kept = {name: whole[name] for name, shape in shapes().items() if len(shape) == 1}
    kept |= {name: rows(name) for name in ("model.embed_tokens.weight", "lm_head.weight")}
    for i in range(LAYERS):
        attention, mlp = f"model.layers.{i}.self_attn", f"model.layers.{i}.mlp"
        kept[f"{attention}.qkv_proj.weight"] = torch.cat([rows(f"{attention}.{one}_proj.weight") for one in "qkv"])
        kept[f"{attention}.o_proj.weight"] = columns(f"{attention}.o_proj.weight")
        kept[f"{mlp}.gate_up_proj.weight"] = torch.cat([rows(f"{mlp}.{one}_proj.weight") for one in ("gate", "up")])
        kept[f"{mlp}.down_proj.weight"] = columns(f"{mlp}.down_proj.weight")
    return kept
