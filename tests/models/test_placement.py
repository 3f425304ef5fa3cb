"""In which precision a model runs, whether it fits, what would, and what is said of it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from rho_eos.base.errors import UserError
from rho_eos.config import EngineConfig
from rho_eos.evals.runs.provenance import model_identity
from rho_eos.llm import LLM
from rho_eos.models import widening
from rho_eos.models.loading import open_checkpoint
from rho_eos.models.placement import describe, place, settled, stored_dtype, ways_to_compute
from tests.checkpoints import write_checkpoint
from tests.evals.command import Command

CPU, CUDA, MPS = torch.device("cpu"), torch.device("cuda"), torch.device("mps")
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16


@pytest.fixture
def stored_in_bfloat16(tmp_path: Path) -> Path:
    folder = write_checkpoint(tmp_path)
    weights = load_file(folder / "model.safetensors")
    some = {name: weight.bfloat16() for name, weight in weights.items()}
    some["model.transformer.ln_f.weight"] = weights["model.transformer.ln_f.weight"].float()
    save_file(some, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def can(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: dict.fromkeys(names, True))


def test_most_of_the_weights_decide_what_a_checkpoint_is_stored_in(
    stored_in_bfloat16: Path,
) -> None:
    found = open_checkpoint(EngineConfig(model=str(stored_in_bfloat16)))
    assert found.stored_dtypes == ("BF16", "F32")
    assert stored_dtype(found) == BF16


@pytest.mark.parametrize(
    ("asked", "device", "stored", "ways"),
    [
        ("auto", CUDA, BF16, [(BF16, BF16)]),
        ("auto", MPS, F16, [(F16, F16)]),
        ("auto", MPS, torch.float64, [(F32, F32)]),
        ("auto", CPU, F32, [(F32, F32)]),
        ("auto", CPU, BF16, [(F32, F32), (BF16, F32)]),
        ("auto", CPU, F16, [(F32, F32), (F16, F32)]),
        ("float32", CPU, BF16, [(F32, F32), (BF16, F32)]),
        ("float32", CUDA, BF16, [(F32, F32)]),
        ("bfloat16", CPU, BF16, [(F32, F32), (BF16, F32)]),
        ("bfloat16", CPU, F32, [(BF16, F32)]),  # to be rounded, so never kept as it is stored
    ],
)
def test_on_a_cpu_without_16_bit_arithmetic(
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    device: torch.device,
    stored: torch.dtype,
    ways: list[tuple[torch.dtype, torch.dtype]],
) -> None:
    can(monkeypatch, "avx2")
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (8, 0))
    assert ways_to_compute(asked, device, stored) == ways


@pytest.mark.parametrize(
    ("capability", "asked", "computes"),
    [
        ((7, 5), "auto", F16),
        ((7, 0), "auto", F16),
        ((7, 5), "bfloat16", BF16),
        ((8, 0), "auto", BF16),
    ],
)
def test_a_gpu_that_emulates_bfloat16_computes_in_float16_unless_asked(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], asked: str, computes: torch.dtype
) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: capability)
    assert ways_to_compute(asked, CUDA, BF16) == [(computes, computes)]
    free(monkeypatch, 64 * GB)
    found = describe(EngineConfig(dtype=asked), EightBillion(), CUDA).identity()
    assert found["dtype"] == found["compute_dtype"] == str(computes).removeprefix("torch.")


@pytest.mark.parametrize("has", ["avx512_bf16", "bf16"])  # the latter is what ARM calls it
def test_on_a_cpu_with_16_bit_arithmetic(monkeypatch: pytest.MonkeyPatch, has: str) -> None:
    can(monkeypatch, has)
    assert ways_to_compute("auto", CPU, BF16) == [(BF16, BF16)]
    assert ways_to_compute("auto", CPU, F16)[0] == (F32, F32)


def test_widened_layers_compute_what_wide_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(widening, "PIECE", 4 * 24 * 5)  # so that a weight comes in pieces
    torch.manual_seed(0)
    narrow = nn.Linear(24, 17).bfloat16()
    wide = nn.Linear(24, 17)
    wide.load_state_dict({name: value.float() for name, value in narrow.state_dict().items()})
    inputs = torch.randn(3, 7, 24)
    torch.testing.assert_close(widening.WideLinear(narrow, F32)(inputs), wide(inputs))


def test_weights_kept_in_16_bit_give_the_text_of_widened_ones(
    stored_in_bfloat16: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where they lie differs: so an evaluation may go on where less memory is free."""
    can(monkeypatch, "avx2")
    roomy = LLM(str(stored_in_bfloat16))
    needed = roomy.placement.needed
    monkeypatch.setattr("rho_eos.models.placement.free_memory", lambda device: needed - 1)
    tight = LLM(str(stored_in_bfloat16))
    assert (roomy.placement.weights, roomy.placement.compute) == (F32, F32)
    assert (tight.placement.weights, tight.placement.compute) == (BF16, F32)
    assert tight.placement.identity() == roomy.placement.identity()
    assert tight.placement.identity()["dtype"] == "bfloat16"
    assert tight.model.model.layers[0].mlp.up_proj.weight.dtype == BF16
    assert tight.model.model.norm.weight.dtype == F32
    texts = [llm.generate(["hello", "and more"]) for llm in (roomy, tight)]
    assert [each.token_ids for each in texts[0]] == [each.token_ids for each in texts[1]]


def free(monkeypatch: pytest.MonkeyPatch, size: int | None) -> None:
    monkeypatch.setattr("rho_eos.models.placement.free_memory", lambda device: size)


class EightBillion:
    """LLaDA-8B-Instruct as its headers and config describe it."""

    parameters = 8_015_581_184
    stored_dtypes = ("BF16",)
    context_length = 4096

    class config:  # noqa: N801
        vocab_size, hidden_size, intermediate_size = 126_464, 4096, 12_288
        num_experts = None
        tie_word_embeddings = False


GB = 10**9


def test_eight_billion_parameters_on_machines_of_several_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    can(monkeypatch, "avx2")

    def chosen(gigabytes: float, **options: Any) -> str:
        free(monkeypatch, int(gigabytes * GB))
        return place(EngineConfig(**options), EightBillion(), CPU).sentence

    assert chosen(64).startswith("cpu, float32, not quantised; needs 33.")
    assert chosen(20).startswith("cpu, bfloat16 computed in float32, not quantised; needs 17.")
    assert chosen(12, quantization="int8").startswith("cpu, bfloat16 computed in float32, int8;")
    assert chosen(8, quantization="int4").startswith("cpu, bfloat16 computed in float32, int4;")
    with pytest.raises(UserError) as refused:
        chosen(8)
    assert str(refused.value) == (
        "tiny needs 17.1 GB of memory on cpu as asked, but 8.0 GB are free; "
        "these would fit: --quantization int4 (7.1 GB)"
    )
    with pytest.raises(UserError, match="nothing that is offered here would fit"):
        chosen(4)


@pytest.mark.parametrize(
    ("quantization", "needed", "most"),
    [("none", 16.6, 22.4), ("int8", 9.8, 15.6), ("int4", 6.6, 12.4)],
)
def test_what_is_counted_is_what_is_taken(
    monkeypatch: pytest.MonkeyPatch, quantization: str, needed: float, most: float
) -> None:
    """The largest batch and all kept keys and values are counted, and fitted into what is free."""
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (8, 0))

    def placed(gigabytes: float | None) -> Any:
        free(monkeypatch, None if gigabytes is None else int(gigabytes * GB))
        return describe(EngineConfig(quantization=quantization), EightBillion(), CUDA)

    wide, tight, unknown = placed(64), placed(needed + 2), placed(None)
    assert wide.needed / GB == pytest.approx(needed, abs=0.05)
    assert wide.most / GB == pytest.approx(most, abs=0.06)
    assert (wide.positions, wide.cache_megabytes) == (16_384, 4096)
    assert (unknown.positions, unknown.cache_megabytes) == (16_384, 4096)
    assert 4096 < tight.positions < 16_384 and 0 < tight.cache_megabytes < 4096
    beyond = (tight.positions - 4096) * 6 * 2 * (4096 + 6144) + tight.cache_megabytes * 2**20
    assert tight.needed + beyond <= tight.free
    assert f"{tight.positions:,} positions at once" in tight.sentence
    assert "at once" not in wide.sentence
    least = placed(needed)
    assert least.positions < 4300 and least.cache_megabytes < 64


def test_a_loaded_model_shares_what_is_free_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: None)
    free(monkeypatch, 64 * GB)
    config, model = EngineConfig(), EightBillion()
    placement = place(config, model, CUDA)
    free(monkeypatch, 2 * GB)  # others came in meanwhile
    tight = settled(config, model, placement)
    assert 4096 < tight.positions < 8192 and 500 < tight.cache_megabytes < 2048
    free(monkeypatch, 0)
    assert settled(config, model, placement).cache_megabytes == 0
    free(monkeypatch, 64 * GB)
    on_cpu = place(config, model, CPU)
    free(monkeypatch, 2 * GB)  # what is mapped from a file counts as free, and as taken
    assert settled(config, model, on_cpu) == on_cpu


def test_where_nobody_can_say_how_much_is_free_it_is_tried(
    monkeypatch: pytest.MonkeyPatch, byte_checkpoint: Path
) -> None:
    free(monkeypatch, None)
    assert "free" not in LLM(str(byte_checkpoint)).placement.sentence


def test_the_line_at_the_start_and_too_little_memory(
    monkeypatch: pytest.MonkeyPatch, byte_checkpoint: Path, command: Command
) -> None:
    words = ("generate", "x", "--model", byte_checkpoint, "--max-new-tokens", "8")
    done = command(*words)
    assert done.code == 0 and done.err.count("\n") == 1 and "are free" in done.err
    assert done.err.startswith(f"rho-eos: {byte_checkpoint}: cpu, float32, not quantised; needs ")
    free(monkeypatch, 1000)
    refused = command(*words)
    assert refused.code == 2 and refused.err.count("\n") == 1
    assert "but 0.0 MB are free" in refused.err


def test_info_describes_what_would_not_fit(
    monkeypatch: pytest.MonkeyPatch, byte_checkpoint: Path
) -> None:
    free(monkeypatch, 10)
    config = EngineConfig(model=str(byte_checkpoint))
    checkpoint = open_checkpoint(config)
    with pytest.raises(UserError, match=r"needs .* but 0\.0 MB are free"):
        place(config, checkpoint, CPU)
    assert describe(config, checkpoint, CPU).free == 10


def test_info_of_a_quantised_model_is_data_too(byte_checkpoint: Path, command: Command) -> None:
    done = command("info", byte_checkpoint, "--quantization", "int4", "--json")
    found = json.loads(done.out)
    assert done.code == 0 and ", int4; needs " in found["would run on"]
    assert found["room for"].startswith("16,384 positions at once, and 4.3 GB")


def test_quantisation_is_part_of_what_answers(byte_checkpoint: Path) -> None:
    plain, small = (
        model_identity(EngineConfig(model=str(byte_checkpoint), quantization=kind))
        for kind in ("none", "int4")
    )
    assert plain["weights"] == small["weights"] and plain != small
    assert (small["dtype"], small["compute_dtype"]) == ("float32", "float32")
    assert small["quantization"].startswith("int4")
