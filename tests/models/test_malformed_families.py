"""Damaged configs of every family: it works, or it is one sentence; nothing else."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import psutil
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from rho_eos import LLM, DecodeParams, UserError
from rho_eos.engine.errors import EngineError
from tests.attack import times
from tests.models.parity import JUNK, NAMES, PARITY, SECONDS, within

PARAMS = DecodeParams(initial_length=8, max_new_tokens=8)
EOS, MASK = 2, 3
#: Fields that some family reads, or transformers itself, and others do not expect.
FOREIGN = [
    *("moe_layer_freq", "num_experts", "expert_intermediate_size", "layer_types", "head_dim"),
    *("rope_scaling", "rope_parameters", "partial_rotary_factor", "sliding_window", "hidden_act"),
    *("quantization_config", "torch_dtype", "dtype", "architectures", "auto_map", "id2label"),
    *("num_labels", "label2id", "text_config", "attn_implementation", "_attn_implementation"),
    *("transformers_version", "tokenizer_class", "is_encoder_decoder", "return_dict"),
]
MORE_JUNK = [False, ["full_attention"] * 3, [0, "x", 1], [10**9] * 3, [[]], "bfloat16"]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One of each family, with a tokenizer of a few letters."""
    pieces = ["<s>", "<pad>", "</s>", "<mask>", *"abcdefghijklmnopqrstuvwxyz"]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(BPE({piece: n for n, piece in enumerate(pieces)}, [])),
        eos_token=pieces[EOS],
        mask_token=pieces[MASK],
    )
    folder = tmp_path_factory.mktemp("families")
    for name in NAMES:
        shutil.copytree(PARITY / name, folder / name)
        (folder / name / "io.safetensors").unlink()
        tokenizer.save_pretrained(folder / name)
        change(folder / name, mask_token_id=MASK)
    return {name: folder / name for name in NAMES}


def change(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def answer(folder: Path) -> None:
    with within(SECONDS):
        LLM(str(folder)).generate(["hello"], PARAMS, raw=True)


@pytest.mark.parametrize("name", NAMES)
def test_unchanged_it_works(checkpoints: dict[str, Path], name: str) -> None:
    answer(checkpoints[name])


def test_random_damage_to_the_config_of_any_family(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    dice = random.Random(29)
    for number in range(times(30, 1500)):
        name = dice.choice(NAMES)
        folder = tmp_path / str(number)
        shutil.copytree(checkpoints[name], folder)
        fields = [*sorted(json.loads((folder / "config.json").read_text())), *FOREIGN]
        damage = {dice.choice(fields): dice.choice(JUNK + MORE_JUNK)}
        if dice.random() < 0.3:
            damage[dice.choice(fields)] = dice.choice(JUNK + MORE_JUNK)
        change(folder, **damage)
        before = psutil.Process().memory_info().rss
        try:
            answer(folder)
        except (UserError, EngineError) as refused:
            assert 10 < len(str(refused)) < 1500
        except Exception as error:
            raise AssertionError(f"{name} with {damage}: {error!r}") from error
        assert psutil.Process().memory_info().rss - before < 500 * 2**20, f"{name} with {damage}"
        shutil.rmtree(folder)


@pytest.mark.parametrize("junk", [-1, 2.5, True, "x", ["x"], [[]], {"a": 1}])
@pytest.mark.parametrize("name", ["dream", "a2d-qwen3", "llada-gqa", "illada"])
def test_a_field_of_another_family_means_nothing(
    checkpoints: dict[str, Path], tmp_path: Path, name: str, junk: Any
) -> None:
    folder = shutil.copytree(checkpoints[name], tmp_path / name)
    change(folder, moe_layer_freq=junk)
    answer(folder)


@pytest.mark.parametrize("name", ["dream", "a2d-qwen2", "a2d-qwen3", "illada"])
def test_a_field_of_another_family_hides_no_size(
    checkpoints: dict[str, Path], tmp_path: Path, name: str
) -> None:
    """As if all layers had small experts: ten gigabytes would be built for a small file."""
    folder = shutil.copytree(checkpoints[name], tmp_path / name)
    small = {"num_experts": 1, "expert_intermediate_size": 1, "moe_layer_freq": [1]}
    change(folder, intermediate_size=2**24, **small)
    with pytest.raises(UserError, match="describes a model of about"):
        answer(folder)
