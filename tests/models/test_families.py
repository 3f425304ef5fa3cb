"""Which family reads a config, and where ids, sizes and context come from."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedTokenizerFast

from rho_eos.base.errors import UserError
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams
from rho_eos.llm import LLM
from rho_eos.models.family import FAMILIES, find_family
from rho_eos.models.loading import open_checkpoint
from rho_eos.models.special_tokens import find_special_tokens
from rho_eos.text.ask import Ask
from rho_eos.text.preparation import Preparer
from tests.models.parity import FAMILY, NAMES, ONE_EACH, PARITY, changed

#: What stands in the published config.json files, as far as it matters here.
DREAM_7B: dict[str, Any] = {
    "architectures": ["DreamModel"],
    "attention_dropout": 0.0,
    "auto_map": {
        "AutoConfig": "configuration_dream.DreamConfig",
        "AutoModel": "modeling_dream.DreamModel",
    },
    "bos_token_id": 151643,
    "eos_token_id": 151643,
    "hidden_act": "silu",
    "hidden_size": 3584,
    "initializer_range": 0.02,
    "intermediate_size": 18944,
    "mask_token_id": 151666,
    "max_position_embeddings": 131072,
    "max_window_layers": 28,
    "model_type": "Dream",
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "pad_token_id": 151643,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_mrope": False,
    "use_sliding_window": False,
    "vocab_size": 152064,
}
LLADA_8B: dict[str, Any] = {
    "activation_type": "silu",
    "alibi": False,
    "architectures": ["LLaDAModelLM"],
    "auto_map": {
        "AutoConfig": "configuration_llada.LLaDAConfig",
        "AutoModelForCausalLM": "modeling_llada.LLaDAModelLM",
        "AutoModel": "modeling_llada.LLaDAModelLM",
    },
    "block_type": "llama",
    "d_model": 4096,
    "embedding_size": 126464,
    "eos_token_id": 126081,
    "include_bias": False,
    "include_qkv_bias": False,
    "layer_norm_type": "rms",
    "mask_token_id": 126336,
    "max_sequence_length": 4096,
    "mlp_hidden_size": 12288,
    "model_type": "llada",
    "n_heads": 32,
    "n_kv_heads": 32,
    "n_layers": 32,
    "pad_token_id": 126081,
    "rms_norm_eps": 1e-05,
    "rope": True,
    "rope_full_precision": True,
    "rope_theta": 500000.0,
    "vocab_size": 126464,
    "weight_tying": False,
}


def folder_with(tmp_path: Path, config: dict[str, Any]) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_a_family_is_recognised_by_its_config(name: str) -> None:
    config = json.loads((PARITY / name / "config.json").read_text())
    (family,) = (family for family in FAMILIES.all().values() if family.reads(config))
    assert family.name.lower() == FAMILY[name]
    assert type(AutoConfig.from_pretrained(PARITY / name)) is family.config
    assert type(family.config.from_pretrained(PARITY / name)) is family.config
    checkpoint = open_checkpoint(EngineConfig(model=str(PARITY / name), mask_token_id=3))
    assert checkpoint.family is family and checkpoint.family.caches


@pytest.mark.parametrize("model_type", ["gpt2", None])
def test_an_unknown_family_is_told_the_known_ones(tmp_path: Path, model_type: str | None) -> None:
    config = {"model_type": model_type} if model_type else {}
    with pytest.raises(UserError) as refused:
        open_checkpoint(EngineConfig(model=str(folder_with(tmp_path, config))))
    assert all(name in str(refused.value) for name in FAMILIES.all())
    assert repr(model_type) in str(refused.value)


def test_a_layer_norm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="layer_norm_eps is 1e-05"):
        AutoConfig.from_pretrained(changed(tmp_path, "illada", layer_norm_eps=1e-5))


# Dream-Coder-7B and DiffuCoder-7B differ from Dream-7B in the code their repositories point to.
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"architectures": ["DreamModel"], "auto_map": {"AutoModel": "modeling_dream.DreamModel"}},
        {"architectures": ["DiffuCoderModel"], "transformers_version": "4.52.0.dev0"},
    ],
    ids=["Dream-7B", "Dream-Coder-7B", "DiffuCoder-7B"],
)
def test_the_dream_models_load_as_dream(tmp_path: Path, fields: dict[str, Any]) -> None:
    config = AutoConfig.from_pretrained(folder_with(tmp_path, DREAM_7B | fields))
    with torch.device("meta"):
        model = AutoModelForMaskedLM.from_config(config)
    assert type(model) is FAMILIES.find("Dream").masked_lm
    assert model.prediction_shift == 1
    special = find_special_tokens(EngineConfig(), find_family(config.to_dict()), config, None)
    assert (special.mask, special.eos) == (151666, 151643)


def test_llada_8b_has_its_ids_in_its_config(tmp_path: Path) -> None:
    config = AutoConfig.from_pretrained(folder_with(tmp_path, LLADA_8B))
    special = find_special_tokens(EngineConfig(), find_family(config.to_dict()), config, None)
    assert (special.mask, special.eos) == (126336, 126081)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("llada-mha", "d_model"),
        ("llada-moe", "expert_intermediate_size"),
        ("illada", "num_hidden_layers"),
        ("dream", "vocab_size"),
    ],
)
def test_no_config_class_invents_sizes(tmp_path: Path, name: str, field: str) -> None:
    with pytest.raises(UserError, match=f"config has no {field}"):
        AutoConfig.from_pretrained(changed(tmp_path, name, **{field: None}))


@pytest.mark.parametrize("name", ONE_EACH)
def test_no_config_class_invents_ids(tmp_path: Path, name: str) -> None:
    folder = changed(tmp_path, name, mask_token_id=None, eos_token_id=None)
    config = AutoConfig.from_pretrained(folder)
    assert (config.mask_token_id, config.eos_token_id) == (None, None)
    with pytest.raises(UserError, match="neither config nor tokenizer has a mask_token_id"):
        open_checkpoint(EngineConfig(model=str(folder)))
    with pytest.raises(UserError, match="neither config nor tokenizer has a eos_token_id"):
        open_checkpoint(EngineConfig(model=str(folder), mask_token_id=3))
    given = EngineConfig(model=str(folder), mask_token_id=3, eos_token_id=2)
    assert open_checkpoint(given).special.mask == 3


def tokenizer_with(*names: str) -> PreTrainedTokenizerFast:
    """It declares no special token; that it has some shows only in its vocabulary."""
    vocabulary = {word: id for id, word in enumerate(("?", "a", "b", "c", *names))}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(vocabulary, unk_token="?")))


@pytest.mark.parametrize(
    ("model_type", "mask", "end"),
    [
        ("illada", "<[MASK]>", "<|eot_id|>"),
        ("illada", "<|mdm_mask|>", "<|eot_id|>"),
        ("illada", "<|mask|>", "<|eot_id|>"),
        ("llada", "<|mdm_mask|>", "<|eot_id|>"),
        ("llada-moe", "<|mask|>", "<|role_end|>"),
        ("Dream", "<|mask|>", "<|im_end|>"),
        ("a2d-qwen2", "<|mask|>", "<|im_end|>"),
    ],
)
def test_ids_are_found_under_the_names_of_the_family(model_type: str, mask: str, end: str) -> None:
    tokenizer = tokenizer_with(mask, end)
    config = FAMILIES.find(model_type).config(vocab_size=9, eos_token_id=1)
    special = find_special_tokens(EngineConfig(), FAMILIES.find(model_type), config, tokenizer)
    assert tokenizer.convert_ids_to_tokens([special.mask, special.end_of_turn]) == [mask, end]


def test_the_context_is_what_the_family_was_trained_on(tmp_path: Path) -> None:
    folder = changed(tmp_path, "dream", max_position_embeddings=131072)
    config = EngineConfig(model=str(folder))
    preparer = Preparer(open_checkpoint(config), config)
    assert preparer.checkpoint.context_length == 2048
    preparer.prepare(Ask([5] * 1000))
    with pytest.raises(UserError, match=r"2048 tokens.*more than the model's context of 2048"):
        preparer.prepare(Ask([5] * 2048))
    shorter = open_checkpoint(EngineConfig(model=str(PARITY / "dream")))
    assert shorter.context_length == 512
    other = changed(tmp_path, "a2d-qwen2", max_position_embeddings=131072)
    assert open_checkpoint(EngineConfig(model=str(other))).context_length == 131072


@pytest.mark.parametrize("cache", ["none", "window"])
@pytest.mark.parametrize("name", [*ONE_EACH, "llada-moe-bias"])
def test_rows_decode_together_as_they_do_alone(name: str, cache: str) -> None:
    """The whole path, with the attention, the experts and the shift of the family."""
    llm = LLM(str(PARITY / name), mask_token_id=3)
    params = DecodeParams(policy="rho-eos", initial_length=12, max_new_tokens=24, cache=cache)
    prompts = [[5 + n] * n + [9, 11] for n in (1, 4, 13, 6)]
    together = llm.generate(prompts, params)
    alone = [llm.generate([prompt], params)[0] for prompt in prompts]
    assert [output.canvas_token_ids for output in together] == [
        output.canvas_token_ids for output in alone
    ]
    assert {len(output.canvas_token_ids) for output in alone} != {12}
