"""Block diffusion models in the layout and under the names they are published with, without a flag.

The weights are random, and the tokenizer is of bytes with the published special tokens.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from rho_eos.models.family import find_family
from tests.checkpoints import byte_tokenizer
from tests.server.conftest import MODEL, Process, start_server

COMMON = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 64,
    "max_position_embeddings": 2048,
    "rope_theta": 1e6,
    "tie_word_embeddings": False,
}
#: Neither names its block's length nor its MASK in config.json.
SDAR: dict[str, Any] = {"model_type": "sdar", "hidden_act": "silu", "rms_norm_eps": 1e-6}
LLADA2: dict[str, Any] = {
    "model_type": "llada2_moe",
    "moe_intermediate_size": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_shared_experts": 1,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 1,
    "partial_rotary_factor": 0.5,
}
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ROLES = (
    "<role>SYSTEM</role>detailed thinking off<|role_end|>{% for message in messages %}"
    "<role>{{ 'HUMAN' if message['role'] == 'user' else 'ASSISTANT' }}</role>"
    "{{ message['content'] }}<|role_end|>{% endfor %}"
    "{% if add_generation_prompt %}<role>ASSISTANT</role>{% endif %}"
)


def publish(
    folder: Path, fields: dict[str, Any], end: str, mask: str, template: str
) -> PreTrainedTokenizerFast:
    tokenizer = byte_tokenizer(template)
    tokenizer.add_special_tokens({"additional_special_tokens": [end, mask]})
    torch.manual_seed(0)
    family = find_family(fields)
    eos = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    sizes = {**COMMON, **fields, "vocab_size": len(tokenizer), "eos_token_id": eos}
    model = family.masked_lm(family.config.from_dict(sizes))
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(8)  # a random model that has opinions
        model.lm_head.weight[tokenizer.convert_tokens_to_ids(mask)] = 0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # As published: the MASK is named by the tokenizer's list of tokens only, ends by both files.
    for file, without in (
        ("config.json", "mask_token_id"),
        ("tokenizer_config.json", "mask_token"),
    ):
        said = json.loads((folder / file).read_text())
        said.pop(without, None)
        (folder / file).write_text(json.dumps(said))
    ends = [eos, tokenizer.convert_tokens_to_ids(end)]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    return tokenizer


@pytest.fixture(scope="module", params=["JetLM/SDAR-4B-Chat", "inclusionAI/LLaDA2.1-mini"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Process, PreTrainedTokenizerFast]]:
    home = tmp_path_factory.mktemp("published")
    kind = (SDAR, "<|im_end|>", "<|MASK|>", CHATML)
    if "LLaDA2" in request.param:
        kind = (LLADA2, "<|role_end|>", "<|mask|>", ROLES)
    tokenizer = publish(home / request.param, *kind)
    process = start_server(home / request.param, home / "log")
    yield request.param, process, tokenizer
    process.end()


ASKED: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "What is left of nine pears?"}],
    "max_tokens": 80,
}


def test_its_blocks_and_its_way_to_decode_are_known(served: Any) -> None:
    name, server, _ = served
    start, frames, *_ = server.web.steps(messages=ASKED["messages"], max_tokens=80)
    params = start["params"]
    edits = "LLaDA2" in name
    assert params["block_length"] == (32 if edits else 4)
    assert params["commit"] == ("editing" if edits else "threshold")
    assert (params["policy"], params["cache"]) == ("blocks", "blocks")
    written = [place for frame in frames for place, *_ in frame["committed"]]
    assert (len(set(written)) < len(written)) == edits


def test_chat_has_the_prompt_of_its_template_and_streams_what_it_answers(served: Any) -> None:
    _, server, tokenizer = served
    client = server.client()
    answer = client.chat.completions.create(**ASKED)
    prompt = tokenizer.apply_chat_template(
        ASKED["messages"], add_generation_prompt=True, return_dict=False
    )
    assert answer.usage.prompt_tokens == len(prompt)
    assert 0 < answer.usage.completion_tokens <= 80
    chunks = list(client.chat.completions.create(**ASKED, stream=True))
    told = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(told) == answer.choices[0].message.content
    assert sum(map(bool, told)) > 1, "the text came in one piece"
    assert not any(token in "".join(told) for token in tokenizer.all_special_tokens)
