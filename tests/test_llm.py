"""The front door on real checkpoints: folders, special ids, streams and what is refused."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rho_eos import LLM, DecodeParams, FinishReason, UserError
from rho_eos.text.ask import Ask
from tests.checkpoints import write_checkpoint
from tests.conftest import DATA

SHORT = DecodeParams(initial_length=16, max_new_tokens=48)


@pytest.fixture(scope="module")
def llm(byte_checkpoint: Path) -> LLM:
    return LLM(str(byte_checkpoint))


def test_importing_the_package_imports_no_torch() -> None:
    modules = "rho_eos, rho_eos.cli, rho_eos.cluster"
    code = f"import {modules}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_outputs_come_in_the_order_of_the_prompts_whatever_the_batch(llm: LLM) -> None:
    prompts = [f"prompt {number}" * (number + 1) for number in range(6)]
    together = llm.generate(prompts, SHORT)
    alone = [llm.generate([prompt], SHORT)[0] for prompt in prompts]
    assert [o.token_ids for o in together] == [o.token_ids for o in alone]
    assert len({o.text for o in together}) > 1


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


def test_chat_equals_generate_with_messages(llm: LLM) -> None:
    messages = [{"role": "user", "content": "hello"}]
    assert llm.chat(messages, SHORT).token_ids == llm.generate(["hello"], SHORT)[0].token_ids


def test_streamed_deltas_are_the_text_and_records_tell_the_story(llm: LLM) -> None:
    events = list(llm.stream("hello", SHORT))
    output = events[-1].output
    assert output is not None and all(event.output is None for event in events[:-1])
    assert "".join(event.delta for event in events) == output.text
    assert output.text == llm.generate(["hello"], SHORT)[0].text
    assert len(events) == output.usage.nfe
    assert events[0].record.length == 16 and events[0].record.change > 0
    assert any(event.draft for event in events)


def test_leaving_a_stream_cancels_the_request(llm: LLM) -> None:
    for _ in llm.stream("hello", SHORT):
        break
    assert not llm.engine.has_work


def test_the_context_bounds_the_canvas(llm: LLM) -> None:
    long = "x" * 480
    output = llm.generate([long], DecodeParams(policy="rho-eos", initial_length=4), raw=True)[0]
    assert output.usage.prompt_tokens + output.usage.n_token <= 512
    with pytest.raises(UserError, match=r"the prompt has 509 tokens.* context of 512"):
        llm.generate(["x" * 509], SHORT, raw=True)


def test_a_base_model_takes_plain_prompts(tmp_path: Path) -> None:
    base = LLM(str(write_checkpoint(tmp_path, chat_template=None)))
    ids = base.preparer.prepare(Ask("hi", SHORT))[0].canvas.prompt.tolist()
    assert base.tokenizer.decode(ids) == "hi"


def test_special_ids_come_from_the_checkpoint_and_can_be_overridden(byte_checkpoint: Path) -> None:
    found = LLM(str(byte_checkpoint)).special
    assert (found.mask, found.eos, found.end_of_turn) == (2, 1, 5)
    changed = LLM(str(byte_checkpoint), eos_token_id=7, end_of_turn_id=8).special
    assert (changed.mask, changed.eos, changed.end_of_turn) == (2, 7, 8)
    with pytest.raises(UserError, match="mask_token_id is 9999, but takes an id below 262"):
        LLM(str(byte_checkpoint), mask_token_id=9999)
    with pytest.raises(UserError, match="both 2, but must differ"):
        LLM(str(byte_checkpoint), eos_token_id=2)


def test_mask_id_from_the_tokenizer_when_the_config_has_none(tmp_path: Path) -> None:
    """dllm's A2D-Qwen3 config has no mask_token_id; without a tokenizer it must be given."""
    folder = str(DATA / "parity" / "a2d-qwen3")
    with pytest.raises(UserError, match="neither config nor tokenizer has a mask_token_id"):
        LLM(folder)
    assert LLM(folder, mask_token_id=3).special.mask == 3


def test_loading_in_another_precision(byte_checkpoint: Path) -> None:
    half = LLM(str(byte_checkpoint), dtype="bfloat16")
    assert half.model.dtype == torch.bfloat16
    assert half.generate(["hello"], SHORT)[0].usage.n_token > 0


@pytest.fixture
def damaged(byte_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(byte_checkpoint, tmp_path / "model"))


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_what_cannot_be_loaded_is_said_in_one_sentence(damaged: Path) -> None:
    weights = damaged / "model.safetensors"
    whole = weights.read_bytes()

    def complaint() -> str:
        with pytest.raises(UserError) as caught:
            LLM(str(damaged))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    weights.write_bytes(whole[: len(whole) // 2])
    assert "model.safetensors is damaged or incomplete" in complaint()
    weights.write_bytes(b"garbage")
    assert "model.safetensors is damaged or incomplete" in complaint()
    weights.unlink()
    assert "has no model.safetensors" in complaint()
    weights.write_bytes(whole)
    edit_config(damaged, n_layers=3)
    assert "it lacks model.layers.2." in complaint()
    edit_config(damaged, n_layers=1)
    assert "it holds unknown model" in complaint()
    edit_config(damaged, n_layers=2, num_experts=64)
    assert "the llada-moe config has no hidden_size" in complaint()
    edit_config(damaged, model_type="bert")
    assert "unknown model_type 'bert'; known families are Dream, a2d-qwen2, " in complaint()
    (damaged / "config.json").write_text("{")
    assert "cannot read" in complaint() and "config.json" in complaint()
    (damaged / "config.json").unlink()
    assert "has no config.json" in complaint()


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


def test_where_there_is_no_such_model(tmp_path: Path) -> None:
    for name, message in {
        str(tmp_path / "nothing"): "no such model: there is no folder",
        "no-slash": "no such model: there is no folder 'no-slash'",
        str(Path(__file__)): "which is a file",
    }.items():
        with pytest.raises(UserError, match=message):
            LLM(name)


#: Two commands in one process: the client reads its variables once, when it is imported.
INFO_TWICE = """
import sys
from rho_eos.cli import main
for words in (["someone/byte-llada"], ["someone/else", "--revision", "v2"]):
    sys.argv = ["rho-eos", "info", *words]
    try:
        main()
    except SystemExit as ended:
        print("exit", ended.code)
"""


def test_a_hub_id_is_found_in_the_local_cache_without_a_network(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    """The real Hub client, offline, on a cache laid out as it lays it out itself."""
    repo = tmp_path / "hub" / "models--someone--byte-llada"
    commit = "0123456789abcdef0123456789abcdef01234567"
    shutil.copytree(byte_checkpoint, repo / "snapshots" / commit)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(commit)
    environment = os.environ | {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", INFO_TWICE], env=environment, capture_output=True, text=True
    )
    found, missing = done.stdout.split("exit 0\n")
    assert "llada" in found and missing == "exit 2\n", done.stderr
    assert "no such model: 'someone/else'" in done.stderr and "revision v2" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("device", ["cuda", "cuda:0", "mps"])
def test_an_absent_device_is_refused(byte_checkpoint: Path, device: str) -> None:
    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("this machine has an accelerator")
    with pytest.raises(UserError, match="this machine has no"):
        LLM(str(byte_checkpoint), device=device)


def test_an_unknown_device_is_refused(byte_checkpoint: Path) -> None:
    with pytest.raises(UserError, match="device is 'gpu', but takes auto, cpu, cuda"):
        LLM(str(byte_checkpoint), device="gpu")


def test_warming_up_leaves_nothing_behind(byte_checkpoint: Path) -> None:
    llm, fresh = LLM(str(byte_checkpoint)), LLM(str(byte_checkpoint))
    llm.warm_up()
    assert not llm.engine.has_work
    assert llm.generate(["hello"], SHORT)[0].text == fresh.generate(["hello"], SHORT)[0].text
    assert (
        LLM(str(DATA / "parity" / "llada-mha"), mask_token_id=3).warm_up() is None
    )  # no tokenizer
