"""A family from outside: found by a plugin or an entry point, run, compared, refused by name."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from rho_eos import LLM, DecodeParams, Family, FamilyConfig, UserError, register_family
from rho_eos.base.plugins import load_plugin
from rho_eos.config import EngineConfig
from rho_eos.models.family import FAMILIES
from rho_eos.models.loading import open_checkpoint
from tests import forks
from tests.checkpoints import byte_tokenizer
from tests.packages import Packages

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
def test_its_logits_are_those_of_transformers_without_the_causal_mask(folder: Path) -> None:
    load_plugin(str(EXAMPLE))
    family = open_checkpoint(EngineConfig(model=str(folder))).family
    ours = family.masked_lm.from_pretrained(folder)
    theirs = Qwen2ForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    ids = torch.randint(4, 80, (1, 23))
    seen = torch.zeros(1, 1, 23, 23)  # added to the scores: every position sees every other
    expected = theirs(ids, attention_mask=seen).logits
    torch.testing.assert_close(ours(ids).logits, expected, rtol=0, atol=1e-4)
    causal = theirs(ids).logits
    assert (causal - expected).abs().max() > 0.1  # so the mask was heeded


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


def test_a_family_that_cannot_keep_keys_and_values_says_so(folder: Path, tmp_path: Path) -> None:
    register("uncached", caches=False)
    copy = tmp_path / "uncached"
    shutil.copytree(folder, copy)
    fields = json.loads((folder / "config.json").read_text()) | {"model_type": "uncached"}
    (copy / "config.json").write_text(json.dumps(fields))
    assert not open_checkpoint(EngineConfig(model=str(copy))).family.caches
    FAMILIES.remove("uncached")
    with pytest.raises(UserError, match="unknown model_type 'uncached'"):
        open_checkpoint(EngineConfig(model=str(copy)))


def test_what_is_no_family_is_refused() -> None:
    with pytest.raises(UserError, match="no Family"):
        register_family(Family(config=Qwen2Config, layers="Qwen2"))
    with pytest.raises(UserError, match=r"'Dream' is registered already, by rho_eos\.models"):
        register("Dream")
    odd = register("odd", layers="Nothing")
    FAMILIES.remove("odd")
    with pytest.raises(UserError, match="transformers has no Nothing"):
        _ = odd.masked_lm
