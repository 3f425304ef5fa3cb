"""Which family reads a config, where ids, sizes and context come from, and one from outside."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from rho_eos import LLM, DecodeParams, Family, FamilyConfig, UserError, register_family
from rho_eos.config import EngineConfig
from rho_eos.models.family import FAMILIES
from rho_eos.models.loading import open_checkpoint
from rho_eos.models.special_tokens import find_special_tokens
from rho_eos.text.ask import Ask
from rho_eos.text.preparation import Preparer
from tests import forks
from tests.checkpoints import byte_tokenizer
from tests.models.parity import EVERY, FAMILY, ONE_EACH, ONE_EACH_IN_BLOCKS, PARITY, changed
from tests.packages import Packages


@pytest.mark.parametrize("name", EVERY)
def test_a_family_is_recognised_by_its_config(name: str) -> None:
    config = json.loads((PARITY / name / "config.json").read_text())
    (family,) = (family for family in FAMILIES.all().values() if family.reads(config))
    assert family.name.lower() == FAMILY[name]
    assert type(AutoConfig.from_pretrained(PARITY / name)) is family.config
    assert type(family.config.from_pretrained(PARITY / name)) is family.config
    checkpoint = open_checkpoint(
        EngineConfig(model=str(PARITY / name), mask_token_id=3, eos_token_id=2)
    )
    assert checkpoint.family is family and checkpoint.family.caches


@pytest.mark.parametrize("model_type", ["gpt2", None])
def test_an_unknown_family_is_told_the_known_ones(tmp_path: Path, model_type: str | None) -> None:
    folder = changed(tmp_path, "dream", model_type=model_type)
    with pytest.raises(UserError) as refused:
        open_checkpoint(EngineConfig(model=str(folder)))
    assert all(name in str(refused.value) for name in FAMILIES.all())
    assert repr(model_type) in str(refused.value)


@pytest.mark.parametrize("architecture", ["DreamModel", "DiffuCoderModel"])
def test_dream_coder_and_diffucoder_are_dream(tmp_path: Path, architecture: str) -> None:
    """They differ from Dream-7B in the code that their repositories point to."""
    code = {"AutoModel": f"modeling_dream.{architecture}"}
    folder = changed(tmp_path, "dream", architectures=[architecture], auto_map=code)
    assert open_checkpoint(EngineConfig(model=str(folder))).family is FAMILIES.find("Dream")


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("llada-mha", "d_model"),
        ("llada-moe", "expert_intermediate_size"),
        ("illada", "num_hidden_layers"),
        ("dream", "vocab_size"),
        ("llada2-moe", "n_group"),
        ("llada2-moe", "routed_scaling_factor"),
        ("llada2-moe", "partial_rotary_factor"),
    ],
)
def test_no_config_class_invents_sizes(tmp_path: Path, name: str, field: str) -> None:
    with pytest.raises(UserError, match=f"config has no {field}"):
        AutoConfig.from_pretrained(changed(tmp_path, name, **{field: None}))


@pytest.mark.parametrize("name", [*ONE_EACH, *ONE_EACH_IN_BLOCKS])
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
        ("sdar", "<|MASK|>", "<|im_end|>"),
        ("Fast_dLLM_Qwen", "|<MASK>|", "<|im_end|>"),
        ("llada2_moe", "<|mask|>", "<|role_end|>"),
    ],
)
def test_ids_are_found_under_the_names_of_the_family(model_type: str, mask: str, end: str) -> None:
    tokenizer = tokenizer_with(mask, end)
    config = FAMILIES.find(model_type).config(vocab_size=9, eos_token_id=1)
    special = find_special_tokens(EngineConfig(), FAMILIES.find(model_type), config, tokenizer)
    assert tokenizer.convert_ids_to_tokens([special.mask, special.end_of_turn]) == [mask, end]


@pytest.mark.parametrize(
    ("stated", "names", "ends"),
    [
        ([1, 2], (), (1, 2)),  # both, as generation configs list them
        ([2, 1], ("<|im_end|>",), (2, 4)),  # the turn's end has its name
        ([4, 1], ("<|im_end|>",), (1, 4)),  # whichever stands first
        ([4], ("<|im_end|>",), (4,)),
        (4, ("<|im_end|>",), (4,)),
        (1, (), (1,)),
    ],
)
def test_a_config_may_list_several_ends(
    stated: int | list[int], names: tuple[str, ...], ends: tuple[int, ...]
) -> None:
    family = FAMILIES.find("sdar")
    config = family.config(vocab_size=9, eos_token_id=stated, mask_token_id=3)
    special = find_special_tokens(EngineConfig(), family, config, tokenizer_with(*names))
    assert special.ends == ends


def test_names_of_the_family_come_before_what_a_tokenizer_declares() -> None:
    """SDAR's tokenizers declare another MASK than the model was trained with."""
    vocabulary = {"?": 0, "<|endoftext|>": 1, "<|MASK|>": 2, "<mask>": 3, "<|role_end|>": 4}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(vocabulary, unk_token="?")),
        mask_token="<mask>",
        eos_token="<|role_end|>",
    )
    family = FAMILIES.find("sdar")
    special = find_special_tokens(EngineConfig(), family, family.config(vocab_size=9), tokenizer)
    assert (special.mask, special.eos) == (2, 1)
    stated = family.config(vocab_size=9, mask_token_id=5, eos_token_id=6)
    special = find_special_tokens(EngineConfig(eos_token_id=7), family, stated, tokenizer)
    assert (special.mask, special.eos) == (5, 7)


def test_llada2_needs_no_id_in_its_config() -> None:
    tokenizer = tokenizer_with("<|endoftext|>", "<|mask|>", "<|role_end|>")
    family = FAMILIES.find("llada2_moe")
    special = find_special_tokens(EngineConfig(), family, family.config(vocab_size=9), tokenizer)
    assert (special.eos, special.mask, special.end_of_turn) == (4, 5, 6)


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


EXAMPLE = Path(__file__).parents[2] / "examples" / "family.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random checkpoint as transformers' own Qwen2 writes it, with tied embeddings."""
    folder = tmp_path_factory.mktemp("open-dcoder")
    tokenizer = byte_tokenizer()
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.3,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@torch.inference_mode()
def test_it_generates_and_reads_each_prediction_one_position_before(folder: Path) -> None:
    """With every MASK committed in one step, the text is what transformers predicts by itself."""
    llm = LLM(str(folder), plugin=str(EXAMPLE))
    prompt = [40, 50, 60, 70]
    at_once = DecodeParams(policy="fixed", initial_length=8, max_new_tokens=8, threshold=1e-9)
    (output,) = llm.generate([prompt], at_once)
    ids = torch.tensor([prompt + [llm.special.mask] * 8])
    theirs = Qwen2ForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    logits = theirs(ids, attention_mask=torch.zeros(1, 1, 12, 12)).logits[0]
    logits[:, llm.special.mask] = -torch.inf
    assert output.canvas_token_ids == logits[3:11].argmax(-1).tolist()


INFO = """
import sys
path, *sys.argv[1:] = sys.argv[1:]
sys.path.insert(0, path)
from rho_eos.cli import main
main()
"""


def test_a_plugin_or_an_installed_package_makes_it_known(folder: Path, tmp_path: Path) -> None:
    unknown = forks.run("-c", INFO, "", "info", folder)
    assert unknown.returncode == 2
    assert "'qwen2'" in unknown.stderr and "--plugin" in unknown.stderr
    Packages(tmp_path, "rho_eos.families").install("outside_family", EXAMPLE.read_text())
    plugin = forks.run("-c", INFO, "", "info", folder, "--plugin", EXAMPLE)
    installed = forks.run("-c", INFO, tmp_path, "info", folder)
    for known in (plugin, installed):
        assert known.returncode == 0, known.stderr
        assert "open-dcoder" in known.stdout


def register(name: str, layers: str = "Qwen2", **facts: Any) -> Family:
    """A family of this name, with a config class of its own."""
    about = {"model_type": name, "architecture": "X", "__module__": __name__}
    config = type(f"{name.title()}Config", (FamilyConfig, Qwen2Config), about)
    return register_family(Family(config=config, layers=layers, **facts))


def test_what_is_no_family_is_refused() -> None:
    with pytest.raises(UserError, match="no Family"):
        register_family(Family(config=Qwen2Config, layers="Qwen2"))
    with pytest.raises(UserError, match=r"'Dream' is registered already, by rho_eos\.models"):
        register("Dream")
    odd = register("odd", layers="Nothing")
    FAMILIES.remove("odd")
    with pytest.raises(UserError, match="transformers has no Nothing"):
        _ = odd.masked_lm
