"""The front door on real checkpoints: folders, special ids, streams and what is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from rho_eos import LLM, DecodeParams, FinishReason, UserError
from rho_eos.text.ask import Ask
from tests.conftest import DATA

SHORT = DecodeParams(initial_length=16, max_new_tokens=48)


def test_every_prompt_may_have_its_own_parameters(llm: LLM) -> None:
    fixed, grown = llm.generate(
        ["hello", "hello"],
        [{"policy": "fixed", "initial_length": 8, "early_stop": False}, SHORT],
    )
    assert fixed.usage.n_token == 8
    assert grown.usage.n_token == 48  # this random model never ends: the canvas fills
    assert grown.finish_reason is FinishReason.LENGTH
    with pytest.raises(UserError, match="got 1 params for 2 prompts"):
        llm.generate(["a", "b"], [SHORT])


@pytest.mark.parametrize("policy", ["rho-eos", "scout"])  # which begins with a long canvas
def test_the_context_bounds_the_canvas(llm: LLM, policy: str) -> None:
    params = DecodeParams(policy=policy, initial_length=4, trace=True)
    output = llm.generate(["x" * 480], params, raw=True)[0]
    longest = max(record.length for record in output.trace)
    assert output.usage.prompt_tokens + max(longest, output.usage.n_token) <= 512
    with pytest.raises(UserError, match=r"the prompt has 509 tokens.* context of 512"):
        llm.generate(["x" * 509], SHORT, raw=True)


def test_special_ids_come_from_the_checkpoint_and_can_be_overridden(byte_checkpoint: Path) -> None:
    found = LLM(str(byte_checkpoint)).special
    assert (found.mask, found.eos, found.end_of_turn) == (2, 1, 5)
    changed = LLM(str(byte_checkpoint), eos_token_id=7, end_of_turn_id=8).special
    assert (changed.mask, changed.eos, changed.end_of_turn) == (2, 7, 8)
    with pytest.raises(UserError, match="mask_token_id is 9999, but takes an id below 262"):
        LLM(str(byte_checkpoint), mask_token_id=9999)
    with pytest.raises(UserError, match="both 2, but must differ"):
        LLM(str(byte_checkpoint), eos_token_id=2)


def test_a_dream_tokenizer_loads_without_its_remote_code(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    """Dream ships its tokenizer as code; it is Qwen2's, which transformers has."""
    folder = Path(shutil.copytree(DATA / "parity" / "dream", tmp_path / "dream"))
    vocabulary = {"a": 0, "b": 1, "<|endoftext|>": 2, "<|mask|>": 3, "ab": 4, "<|im_end|>": 5}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    settings = {
        "tokenizer_class": "DreamTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "tokenization_dream.py").write_text("raise SystemExit('remote code was run')")
    dream = LLM(str(folder))
    assert dream.special.end_of_turn == 5
    assert dream.preparer.prepare(Ask("abab", SHORT, raw=True))[0].canvas.prompt.tolist() == [4, 4]
    assert dream.generate(["ab"], SHORT)[0].usage.nfe > 0


@pytest.mark.parametrize("device", ["cuda:0", "mps", "gpu"])
def test_a_device_that_is_not_there_is_refused(byte_checkpoint: Path, device: str) -> None:
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("this machine has an accelerator")
    says = "takes auto, cpu, cuda" if device == "gpu" else "this machine has no"
    with pytest.raises(UserError, match=says):
        LLM(str(byte_checkpoint), device=device)


def test_what_comes_back_shows_itself_in_a_line(byte_checkpoint: Path) -> None:
    llm = LLM(str(byte_checkpoint))
    short = {"initial_length": 8, "max_new_tokens": 8}
    [output] = llm.generate("x" * 200, **short)
    for each in (llm, output, llm.rollout(["a"], n=2, **short)):
        assert len(repr(each)) < 300 and "\n" not in repr(each)
    assert str(output.usage.nfe) in repr(output)
