"""Damaged settings of every family: it works, or it is one sentence; nothing else."""

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
from tests.models.parity import EVERY, JUNK, NAMES, PARITY, SECONDS, within

PARAMS = DecodeParams(initial_length=8, max_new_tokens=8)
EOS, MASK = 2, 3
#: Fields that some family reads, or transformers itself, and others do not expect.
FOREIGN = [
    *("moe_layer_freq", "num_experts", "expert_intermediate_size", "layer_types", "head_dim"),
    *("moe_intermediate_size", "n_group", "block_length", "block_alignment", "block_size"),
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
    for name in EVERY:
        shutil.copytree(PARITY / name, folder / name)
        (folder / name / "io.safetensors").unlink()
        tokenizer.save_pretrained(folder / name)
        change(folder / name / "config.json", mask_token_id=MASK, eos_token_id=EOS)
    return {name: folder / name for name in EVERY}


def change(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def answer(folder: Path) -> None:
    with within(SECONDS):
        LLM(str(folder)).generate(["hello"], PARAMS, raw=True)


@pytest.mark.parametrize("name", EVERY)
def test_unchanged_it_works(checkpoints: dict[str, Path], name: str) -> None:
    if name in NAMES:
        answer(checkpoints[name])
    else:
        assert LLM(str(checkpoints[name])).special.mask == MASK


@pytest.mark.parametrize("name", ["sdar-moe", "llada2-moe"])
def test_any_damage_to_what_shapes_experts(
    checkpoints: dict[str, Path], tmp_path: Path, name: str
) -> None:
    """Every field that decides how many there are, or which are chosen, with every junk."""
    folder = shutil.copytree(checkpoints[name], tmp_path / name)
    fields = json.loads((folder / "config.json").read_text())
    own = {"n_group", "topk_group", "moe_intermediate_size", "num_experts", "norm_topk_prob"}
    own |= {"num_experts_per_tok", "num_shared_experts", "first_k_dense_replace", "head_dim"}
    own |= {"routed_scaling_factor", "partial_rotary_factor", "decoder_sparse_step"}
    for field in sorted(own & set(fields)):
        for junk in JUNK + MORE_JUNK:
            change(folder / "config.json", **{field: junk})
            try:
                with within(SECONDS):
                    LLM(str(folder))
            except UserError as refused:
                assert 10 < len(str(refused)) < 1500
            except Exception as error:
                raise AssertionError(f"{name} with {field} {junk!r}: {error!r}") from error
        change(folder / "config.json", **{field: fields[field]})


def test_a_size_is_not_taken_away_by_another_name_of_it(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    """LLaDA-MoE's own field is there, and so is the name that transformers' layers have for it."""
    folder = tmp_path / "moe"
    shutil.copytree(checkpoints["llada-moe"], folder)
    change(folder / "config.json", moe_intermediate_size=None)
    with pytest.raises(UserError, match="expert_intermediate_size"):
        LLM(str(folder))


def test_random_damage_to_the_settings_of_any_family(
    checkpoints: dict[str, Path], tmp_path: Path
) -> None:
    dice = random.Random(29)
    for number in range(times(30, 1500)):
        name = dice.choice(EVERY)
        folder = tmp_path / str(number)
        shutil.copytree(checkpoints[name], folder)
        path = folder / dice.choice(["config.json", "config.json", "tokenizer_config.json"])
        fields = [*sorted(json.loads(path.read_text())), *FOREIGN]
        damage = {dice.choice(fields): dice.choice(JUNK + MORE_JUNK)}
        if dice.random() < 0.3:
            damage[dice.choice(fields)] = dice.choice(JUNK + MORE_JUNK)
        change(path, **damage)
        before = psutil.Process().memory_info().rss
        try:
            answer(folder)
        except (UserError, EngineError) as refused:
            assert 10 < len(str(refused)) < 1500
        except Exception as error:
            raise AssertionError(f"{path} with {damage}: {error!r}") from error
        assert psutil.Process().memory_info().rss - before < 500 * 2**20, f"{path} with {damage}"
        shutil.rmtree(folder)


@pytest.mark.parametrize("junk", [-1, 2.5, True, "x", ["x"], [[]], {"a": 1}])
@pytest.mark.parametrize("name", ["dream", "a2d-qwen3", "llada-gqa", "illada"])
def test_a_field_of_another_family_means_nothing(
    checkpoints: dict[str, Path], tmp_path: Path, name: str, junk: Any
) -> None:
    folder = shutil.copytree(checkpoints[name], tmp_path / name)
    change(folder / "config.json", moe_layer_freq=junk)
    answer(folder)


#: As if all layers had small experts.
SMALL_EXPERTS = {"num_experts": 1, "expert_intermediate_size": 1, "moe_layer_freq": [1]}


@pytest.mark.parametrize(
    ("names", "fields"),
    [
        (("llada2-moe", "sdar-moe"), {"moe_intermediate_size": 2**16}),
        (("llada2-moe", "sdar-moe"), {"num_experts": 2**16}),
        (
            ("dream", "a2d-qwen2", "a2d-qwen3", "illada"),
            {"intermediate_size": 2**24, **SMALL_EXPERTS},
        ),
    ],
)
def test_a_config_that_describes_too_much_is_refused(
    checkpoints: dict[str, Path], tmp_path: Path, names: tuple[str, ...], fields: dict[str, Any]
) -> None:
    """Gigabytes would be built for a small file, whatever fields of another family say."""
    for name in names:
        folder = shutil.copytree(checkpoints[name], tmp_path / name)
        change(folder / "config.json", **fields)
        with pytest.raises(UserError, match="describes a model of about"):
            answer(folder)
