"""Weights are replaced while the engine is in use: `tiny` becomes `terse`, which has its shape.

The oracle is a model that was loaded from the other checkpoint in the ordinary way.
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rho_eos import LLM, Output, UserError
from rho_eos.models import update
from rho_eos.models.known import EMBEDDED
from tests.peft_adapters import make_adapter

PROMPTS = [
    "Ann has 9 coins. 1) loses 4. 2) triples them. How many are left?",
    "What is\n1) (3 + 4)\n2) - (6 - 1)",
]
LIMITS: dict[str, Any] = {"initial_length": 24, "max_new_tokens": 64, "threshold": 0.6}
FILE = "model.safetensors"


def texts(llm: LLM, **more: Any) -> list[list[int]]:
    return [output.canvas_token_ids for output in llm.generate(PROMPTS, {**LIMITS, **more})]


@pytest.fixture(scope="module")
def terse() -> LLM:
    return LLM("terse")


@pytest.fixture(scope="module")
def published() -> dict[str, torch.Tensor]:
    """As LLaDA's own code names them."""
    tensors = load_file(EMBEDDED["terse"] / FILE)
    assert "model.transformer.blocks.0.ff_proj.weight" in tensors
    return tensors


def test_both_naming_schemes_and_every_form(
    terse: LLM, published: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    expected = texts(terse)
    ours = terse.model.state_dict()
    wrapped = ((f"module._orig_mod.{name}", tensor) for name, tensor in published.items())
    save_file(published, tmp_path / "weights.safetensors")
    forms = [ours, published, wrapped, tmp_path / "weights.safetensors", str(EMBEDDED["terse"])]
    llm = LLM("tiny")
    original = load_file(EMBEDDED["tiny"] / FILE)
    before = texts(llm)
    assert before != expected
    for number, form in enumerate(forms):
        assert llm.update_weights(form) == 2 * number + 1
        assert texts(llm) == expected
        llm.update_weights(original)
        assert texts(llm) == before
    [output] = llm.generate(PROMPTS[0], LIMITS)
    assert output.weights_version == 2 * len(forms)
    rollouts = llm.rollout(PROMPTS, LIMITS, n=2)
    assert rollouts.weights_version.tolist() == [2 * len(forms)] * 4


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_quantised_layers_are_quantised_anew(kind: Any, published: dict[str, torch.Tensor]) -> None:
    llm = LLM("tiny", quantization=kind)
    llm.update_weights(published)
    expected = LLM("terse", quantization=kind)
    ids = torch.arange(8, 40)[None]
    with torch.inference_mode():
        assert torch.equal(llm.model(ids).logits, expected.model(ids).logits)
    assert texts(llm) == texts(expected)


def test_what_was_kept_of_the_old_weights_is_not_used(tmp_path: Path) -> None:
    """Blocks of keys and values that later prompts begin with, and the window cache."""
    other = tmp_path / "other"
    changed = LLM("tiny-blocks")
    with torch.no_grad():
        for weight in changed.model.parameters():
            weight.mul_(1.02)
    changed.model.save_pretrained(other)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (other / name).write_bytes((EMBEDDED["tiny-blocks"] / name).read_bytes())
    llm, limits = LLM("tiny-blocks"), {"max_new_tokens": 48}
    prompt = [{"role": "user", "content": "Count the eggs. " * 20 + PROMPTS[0]}]
    [first] = llm.generate([{"messages": prompt}], limits)
    [again] = llm.generate([{"messages": prompt}], limits)
    assert again.usage.positions_reused > 0  # there was something to go wrong
    llm.update_weights(other)
    [after] = llm.generate([{"messages": prompt}], limits)
    assert after.usage.positions_reused == 0
    [expected] = LLM(str(other)).generate([{"messages": prompt}], limits)
    assert after.commit_probabilities == pytest.approx(expected.commit_probabilities, abs=1e-4)
    assert after.commit_probabilities != first.commit_probabilities


def test_experts_are_found_by_their_published_names(tmp_path: Path) -> None:
    parity = Path(__file__).parents[1] / "data" / "parity" / "llada-moe"
    ids_of = {"mask_token_id": 2, "eos_token_id": 1}
    llm = LLM(str(parity), **ids_of)
    tensors = {name: tensor * 1.1 for name, tensor in load_file(parity / FILE).items()}
    assert any(".experts.1." in name for name in tensors)
    (tmp_path / "config.json").write_bytes((parity / "config.json").read_bytes())
    save_file(tensors, tmp_path / FILE, {"format": "pt"})
    llm.update_weights(tensors)
    ids = torch.arange(4, 20)[None]
    with torch.inference_mode():
        expected = LLM(str(tmp_path), **ids_of).model(ids).logits
        assert torch.equal(llm.model(ids).logits, expected)


def test_an_adapter_takes_the_place_of_all_that_was_there(
    tmp_path: Path, published: dict[str, torch.Tensor]
) -> None:
    """Two adapters after another, and weights from elsewhere between: each is merged alone."""
    llm = LLM("tiny", quantization="int8")
    for seed, targets in ((1, ["q_proj", "up_proj"]), (2, ["v_proj"])):
        folder = tmp_path / str(seed)
        make_adapter(folder, EMBEDDED["tiny"], seed=seed, target_modules=targets)
        llm.update_weights(folder)
        expected = LLM("tiny", adapter=str(folder), quantization="int8").model.state_dict()
        own = llm.model.state_dict()
        assert own.keys() == expected.keys()
        assert all(torch.equal(own[name], expected[name]) for name in own)
        llm.update_weights(published)


NAME = "model.transformer.blocks.3.ff_proj.weight"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"model.layers.99.mlp.up_proj.weight": torch.zeros(336, 128)}, "is no weight of this"),
        ({"model.layers.0.q_proj.lora_A.weight": torch.zeros(4, 128)}, "merge the adapter first"),
        ({NAME: torch.zeros(128, 336)}, r"has the shape \(128, 336\), but takes \(336, 128\)"),
        ({NAME: torch.zeros(336, 128, dtype=torch.int64)}, "floating-point"),
        ({NAME: torch.full((336, 128), float("nan"))}, "NaN or infinity"),
        ({NAME: [1.0]}, "floating-point"),
        ({"model.layers.3.mlp.gate_proj.weight": torch.ones(336, 128)}, "twice"),
        ("no/such/folder", "there are no weights at"),
    ],
)
def test_all_or_nothing(
    wrong: Any, sentence: str, tiny: LLM, published: dict[str, torch.Tensor]
) -> None:
    before = {name: tensor.clone() for name, tensor in tiny.model.state_dict().items()}
    given = wrong if isinstance(wrong, str) else [*published.items(), *wrong.items()]
    if not isinstance(wrong, str) and NAME in wrong:
        given = (published | wrong).items()
    with pytest.raises(UserError, match=sentence):
        tiny.update_weights(given)
    assert all(torch.equal(before[name], now) for name, now in tiny.model.state_dict().items())
    with pytest.raises(UserError, match="at least one"):
        tiny.update_weights({})


@pytest.mark.parametrize("kind", ["none", "int8"])
def test_a_failure_in_the_middle_leaves_the_old_weights(
    kind: Any, monkeypatch: pytest.MonkeyPatch, published: dict[str, torch.Tensor]
) -> None:
    llm = LLM("tiny", quantization=kind)
    before, write, count = texts(llm), update._write, 0

    def breaks(old: torch.Tensor, new: torch.Tensor) -> None:
        nonlocal count
        count += 1
        write(old, new)
        if count == 20:
            raise MemoryError("in the middle")

    monkeypatch.setattr(update, "_write", breaks)
    with pytest.raises(MemoryError):
        llm.update_weights(published)
    assert count == 20 and texts(llm) == before
    assert llm.generate(PROMPTS[0], LIMITS)[0].weights_version == 0


def test_under_load_every_output_is_of_one_model(terse: LLM) -> None:
    """Threads generate while weights go back and forth: no output mixes the two."""
    llm = LLM("tiny", max_rows=3)
    states = [load_file(EMBEDDED[name] / FILE) for name in ("tiny", "terse")]
    expected = [texts(llm), texts(terse)]
    found: list[tuple[int, Output]] = []
    failures: list[BaseException] = []
    stop = threading.Event()

    def ask(number: int) -> None:
        try:
            while not stop.is_set():
                for output in llm.generate(PROMPTS[number], LIMITS):
                    found.append((number, output))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(number % 2,)) for number in range(4)]
    for thread in threads:
        thread.start()
    versions = []
    for turn in range(1, 6):
        waits = len(found) + 3
        while len(found) < waits and not failures:
            threading.Event().wait(0.01)
        versions.append(llm.update_weights(states[turn % 2]))
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures and versions == [1, 2, 3, 4, 5]
    for number, output in found:
        assert output.canvas_token_ids == expected[output.weights_version % 2][number]
    assert len({output.weights_version for _, output in found}) >= 4


def test_a_request_that_runs_is_finished_on_the_old_weights(
    terse: LLM, published: dict[str, torch.Tensor]
) -> None:
    llm = LLM("tiny")
    [old] = llm.generate(PROMPTS[0], LIMITS)
    events = llm.stream(PROMPTS[0], LIMITS)
    next(events)
    llm.update_weights(published)
    [new] = llm.generate(PROMPTS[0], LIMITS)
    *_, last = events
    assert last.output is not None and last.output.canvas_token_ids == old.canvas_token_ids
    assert new.canvas_token_ids == terse.generate(PROMPTS[0], LIMITS)[0].canvas_token_ids


@pytest.fixture
def tiny() -> Iterator[LLM]:
    yield LLM("tiny")
