"""Attention in blocks: the rule itself, where a block's length stands, and what is refused."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForMaskedLM, Qwen3Config, Qwen3ForCausalLM

from rho_eos.base.errors import UserError
from rho_eos.config import EngineConfig
from rho_eos.decoding.blocks import Blocks
from rho_eos.evals.runs.provenance import model_hash, model_identity
from rho_eos.models.family import find_family
from rho_eos.models.loading import Checkpoint, open_checkpoint
from tests.models.parity import BLOCKS, PARITY, changed, in_blocks, recorded

Load = Callable[[str], Any]
LENGTH = 19
#: Models whose own forward is told a length, one of each kind: in blocks, full, with experts.
SOME = ["sdar-b4", "a2d-qwen3-bd3lm", "fast-dllm-v2", "llada2-moe", "llada-gqa", "llada-moe"]


def opened(folder: Path | str, **options: Any) -> Checkpoint:
    return open_checkpoint(
        EngineConfig(model=str(folder), mask_token_id=3, eos_token_id=2, **options)
    )


def copied(name: str, to: Path) -> Path:
    shutil.copytree(PARITY / name, to)
    return to


def ids(rows: int = 2) -> torch.Tensor:
    return torch.randint(4, 80, (rows, LENGTH), generator=torch.Generator().manual_seed(0))


def rule(length: int, offsets: tuple[int, ...]) -> torch.Tensor:
    """(rows, 1, seeing, seen), written out position by position."""
    seen = torch.zeros(len(offsets), 1, LENGTH, LENGTH, dtype=torch.bool)
    for row, offset in enumerate(offsets):
        for i in range(LENGTH):
            for j in range(LENGTH):
                seen[row, 0, i, j] = (j + offset) // length <= (i + offset) // length
    return seen


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize(
    ("length", "offsets"), [(4, (0, 0)), (5, (3, 1)), (1, (0, 0)), (LENGTH, (0, 0)), (64, (2, 0))]
)
@torch.inference_mode()
def test_a_position_sees_its_block_and_those_before(
    name: str, length: int, offsets: tuple[int, ...], parity_model: Load
) -> None:
    model = parity_model(name)
    expected = model(ids(), attention_mask=rule(length, offsets), block_length=1).logits
    told = torch.tensor(offsets)
    close(model(ids(), block_length=length, block_offsets=told).logits, expected)
    if not any(offsets):
        close(model(ids(), block_length=length).logits, expected)


@torch.inference_mode()
def test_blocks_of_one_are_a_causal_model() -> None:
    """As transformers' own Qwen3 computes it with the same weights."""
    config = Qwen3Config(**AutoConfig.from_pretrained(PARITY / "sdar-b4").to_dict())
    theirs = Qwen3ForCausalLM.from_pretrained(PARITY / "sdar-b4", config=config).eval()
    ours = AutoModelForMaskedLM.from_pretrained(PARITY / "sdar-b4").eval()
    close(ours(ids(), block_length=1).logits, theirs(ids()).logits)


@pytest.mark.parametrize("name", [name for name in BLOCKS if not name.startswith("a2d")])
@torch.inference_mode()
def test_a_forward_need_not_be_told_what_config_or_name_say(name: str, parity_model: Load) -> None:
    told = in_blocks(name, 0)["block_length"]
    given = {} if name != "llada2-moe" else {"block_length": told}  # that one says it nowhere
    rows, expected = recorded(name)
    close(parity_model(name)(rows[0][None], **given).logits[0], expected[0])


@pytest.mark.parametrize("name", ["sdar-b4", "a2d-qwen2-bd3lm"])
@torch.inference_mode()
def test_other_implementations_of_attention_heed_the_rule(name: str) -> None:
    model = AutoModelForMaskedLM.from_pretrained(PARITY / name, attn_implementation="eager")
    rows, expected = recorded(name)
    close(model.eval()(rows[0][None], **in_blocks(name, 0)).logits[0], expected[0])


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"block_length": 0}, "block_length is 0"),
        ({"block_offsets": torch.tensor([1, 0])}, "block_offsets were given, but"),
    ],
)
def test_what_says_no_blocks_is_refused(
    told: dict[str, Any], message: str, parity_model: Load
) -> None:
    with pytest.raises(UserError, match=message):
        parity_model("a2d-qwen3-bd3lm")(ids(), **told)


PROMPT = {"alignment": "prompt"}
#: A checkpoint, the name of its folder, what is asked, its blocks, and what is said of them.
OPENED: list[tuple[str, str, dict[str, Any], Blocks | None, str]] = [
    ("sdar-b4", "sdar", {}, Blocks(4), "block_size"),
    ("sdar-b4", "SDAR-4B-Chat-b16", {}, Blocks(4), "block_size"),
    ("sdar-b8-bare", "SDAR-4B-Chat-b16", {}, Blocks(16), "-b16"),
    ("sdar-b8-bare", "SDAR-b16-v2", {}, Blocks(16), "-b16"),
    ("sdar-b8-bare", "x-b16/snapshot", {}, Blocks(16), "-b16"),
    ("sdar-b8-bare", "x-b64/SDAR-b16", {}, Blocks(16), "-b16"),
    ("sdar-b8-bare", "SDAR-30B-A3B", {}, Blocks(4), "default"),
    ("sdar-b8-bare", "y-b64/a/b", {}, Blocks(4), "default"),
    ("sdar-b8-bare", "SDAR-b8x", {}, Blocks(4), "default"),
    ("sdar-b8-bare", "SDAR-b0", {}, Blocks(4), "default"),
    ("sdar-moe", "mine", {}, Blocks(4), ""),
    ("llada2-moe", "mine", {}, Blocks(32), ""),
    ("llada2-moe", "LLaDA2.1-mini", {}, Blocks(32), ""),
    ("fast-dllm-v2", "mine", {}, Blocks(8, opens_with_store=True), ""),
    ("a2d-qwen3-bd3lm", "mine", {}, None, "bd3lm"),
    ("a2d-qwen3-bd3lm", "mine", {"attention": "blocks"}, Blocks(32, **PROMPT), ""),
    ("a2d-qwen3-bd3lm", "Qwen3-0.6B-BD3LM-b8", {}, Blocks(8, **PROMPT), "bd3lm"),
    ("a2d-qwen3-bd3lm", "Qwen3-0.6B-BD3LM-b8", {"attention": "full"}, None, "full"),
    ("a2d-qwen2-bd3lm", "a2d-qwen2-bd3lm", {}, Blocks(32, **PROMPT), "bd3lm"),
    ("a2d-qwen3", "mine", {}, None, ""),
    ("dream", "mine", {}, None, ""),
    ("llada-gqa", "mine", {}, None, ""),
]


@pytest.mark.parametrize(("name", "folder", "asked", "blocks", "note"), OPENED)
def test_blocks_are_asked_for_or_said_by_config_or_name_or_usual_for_the_family(
    tmp_path: Path, name: str, folder: str, asked: dict[str, Any], blocks: Blocks | None, note: str
) -> None:
    found = opened(copied(name, tmp_path / folder), **asked)
    assert found.blocks == blocks
    assert note in (found.blocks_note or "")


def test_where_the_folder_is_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copied("sdar-b8-bare", tmp_path / "sdar-b16"))
    assert opened(".").blocks == Blocks(16)


@pytest.mark.parametrize(("alignment", "expected"), [(None, "absolute"), ("prompt", "prompt")])
@torch.inference_mode()
def test_a_llada_config_with_a_block_length_attends_in_blocks(
    tmp_path: Path, alignment: str | None, expected: Any, parity_model: Load
) -> None:
    folder = changed(tmp_path, "llada-gqa", block_length=4, block_alignment=alignment)
    assert opened(folder).blocks == Blocks(4, alignment=expected)
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    close(model(ids()).logits, parity_model("llada-gqa")(ids(), block_length=4).logits)


@pytest.mark.parametrize(
    ("name", "attention"), [("dream", "blocks"), ("llada-gqa", "blocks"), ("sdar-b4", "full")]
)
def test_a_model_of_one_kind_is_not_run_as_the_other(name: str, attention: str) -> None:
    with pytest.raises(UserError, match=f"attention is '{attention}'"):
        opened(PARITY / name, attention=attention)


@pytest.mark.parametrize("junk", [0, -4, True, 2.5, "8", [8], 10**9])
@pytest.mark.parametrize(
    ("name", "field"),
    [("sdar-b4", "block_size"), ("fast-dllm-v2", "bd_size"), ("llada-gqa", "block_length")],
)
def test_a_length_that_is_none_is_refused(tmp_path: Path, name: str, field: str, junk: Any) -> None:
    with pytest.raises(UserError, match=f"{field} is "):
        opened(changed(tmp_path, name, **{field: junk}))


def test_an_alignment_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="block_alignment is 'left'"):
        opened(changed(tmp_path, "llada-gqa", block_length=4, block_alignment="left"))


@pytest.mark.parametrize(
    ("model_type", "word"),
    [
        ("diffusion_gemma", "DiffusionGemma"),
        ("diffusion_gemma_text", "DiffusionGemma"),
        ("WeDLM", "WeDLM"),
        ("wedlm_qwen2", "WeDLM"),
        ("bd3lm", "BD3-LM"),
        ("nemotron_labs_diffusion", "Nemotron"),
    ],
)
def test_kinds_that_are_not_built_are_refused_with_the_reason(model_type: str, word: str) -> None:
    with pytest.raises(UserError, match=word) as refused:
        find_family({"model_type": model_type})
    assert model_type in str(refused.value) and "unknown" not in str(refused.value)


def test_llada2_2_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"LLaDA2\.2 chooses"):
        opened("inclusionAI/LLaDA2.2-mini")  # before anything is asked of the Hub
    with pytest.raises(UserError, match=r"LLaDA2\.2 chooses"):
        opened(copied("llada2-moe", tmp_path / "LLaDA2.2-mini"))
    assert opened(copied("llada2-moe", tmp_path / "LLaDA2.1-mini")).blocks == Blocks(32)


def test_results_of_another_attention_or_another_block_are_not_taken_for_the_same(
    tmp_path: Path,
) -> None:
    """The weights are the same; only the name of the folder or a flag says how they attend."""
    ids = {"mask_token_id": 3, "eos_token_id": 2}

    def config(name: str, **options: Any) -> EngineConfig:
        folder = tmp_path / name
        if not folder.exists():
            copied("a2d-qwen3-bd3lm", folder)
        return EngineConfig(model=str(folder), **ids, **options)

    full = config("mine")
    blocks, longer = config("mine", attention="blocks"), config("mine-b64", attention="blocks")
    assert len({model_hash(each) for each in (full, blocks, longer)}) == 3
    assert model_hash(blocks) == model_hash(config("mine-bd3lm"))
    assert "blocks" not in model_identity(full)  # as runs of earlier versions have it
    assert model_identity(longer)["blocks"]["length"] == 64
