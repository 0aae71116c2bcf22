"""vLLM, which takes its weights from the trainer: python -m tests.vllm_link.generator ADDRESS FOLDER WORKERS.

It prints as JSON the words that it generates with each version, those of transformers' model of the same weights, and
in which parameters its workers differ from values made in one process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from vllm import LLM, SamplingParams
from vllm.config import WeightTransferConfig

import shardway as sw
from shardway.compat import vllm as adapter

from .small_model import CONFIGURATION, NEW_WORDS, PROMPTS, VERSIONS, served, shapes, weights, write_configuration


class Inspection(adapter.WorkerExtension):
    """A worker that says which of its parameters are not what they should be."""

    def differing_parameters(self, version: int) -> list[str]:
        parallel: Any = self.vllm_config.parallel_config  # type: ignore[attr-defined]
        model = self.model_runner.get_model()  # type: ignore[attr-defined]
        expected = served(version, parallel.rank, parallel.world_size)
        unlike = [f"{name} is not expected" for name, _ in model.named_parameters() if name not in expected]
        return unlike + [name for name, value in expected.items() if not torch.equal(_held(model, name), value)]


def _held(model: torch.nn.Module, name: str) -> torch.Tensor:
    """A parameter's value. On the CPU vLLM keeps those of linear layers packed alone: what they make of the identity is
    their value."""
    found = model.get_parameter(name)
    if found.numel():
        return found.data
    layer: Any = model.get_submodule(name.removesuffix(".weight"))
    columns = layer.input_size_per_partition
    return layer.quant_method.apply(layer, torch.eye(columns)).T


def generated(llm: LLM) -> list[list[int]]:
    greedy = SamplingParams(temperature=0.0, max_tokens=NEW_WORDS, ignore_eos=True, detokenize=False)
    answers = llm.generate([{"prompt_token_ids": list(prompt)} for prompt in PROMPTS], greedy, use_tqdm=False)
    return [list(answer.outputs[0].token_ids) for answer in answers]


def reference(version: int) -> list[list[int]]:
    """By transformers, with the whole sequence again for each word."""
    model = LlamaForCausalLM(LlamaConfig(**CONFIGURATION)).eval()
    model.load_state_dict(weights(version))
    found = []
    with torch.no_grad():
        for prompt in PROMPTS:
            words = list(prompt)
            for _ in range(NEW_WORDS):
                words.append(int(model(torch.tensor([words])).logits[0, -1].argmax()))
            found.append(words[len(prompt) :])
    return found


def _failed_update(llm: LLM) -> str:
    llm.collective_rpc("start_weight_update")
    try:
        llm.collective_rpc("update_weights", kwargs={"update_info": {}})
    except Exception as error:
        return str(error)
    return "there was none"


def main() -> None:
    address, folder, workers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    write_configuration(folder)
    llm = LLM(
        model=str(folder),
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=128,
        max_num_seqs=4,
        enforce_eager=True,
        tensor_parallel_size=workers,
        weight_transfer_config=WeightTransferConfig(backend=adapter.BACKEND),
        worker_extension_cls="tests.vllm_link.generator.Inspection",
    )
    published = {name: torch.empty(shape, device="meta") for name, shape in shapes().items()}
    said: dict[str, Any] = {"before": generated(llm), "versions": []}
    llm.collective_rpc(
        "init_weight_transfer_engine", kwargs={"init_info": adapter.init_info(address, published, timeout_s=200)}
    )
    for version in VERSIONS:
        llm.collective_rpc("start_weight_update")
        llm.collective_rpc("update_weights", kwargs={"update_info": {}})
        llm.collective_rpc("finish_weight_update")
        differing = llm.collective_rpc("differing_parameters", args=(version,))
        said["versions"].append({"generated": generated(llm), "expected": reference(version), "differing": differing})
    said["trainer_left"] = {"error": _failed_update(llm), "generated": generated(llm)}
    llm.collective_rpc("shutdown_weight_transfer_engine")
    said["shardway"] = sw.__file__
    print("ANSWER " + json.dumps(said))


if __name__ == "__main__":
    main()
