"""Before anything is loaded: does it fit, what would, and what is said of it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rho_eos.base.errors import UserError
from rho_eos.cli import main
from rho_eos.config import EngineConfig
from rho_eos.evals.runs.provenance import model_identity
from rho_eos.llm import LLM
from rho_eos.models import placement
from rho_eos.models.loading import open_checkpoint
from rho_eos.models.placement import describe, place

CPU = torch.device("cpu")


def free(monkeypatch: pytest.MonkeyPatch, size: int | None) -> None:
    monkeypatch.setattr("rho_eos.models.placement.free_memory", lambda device: size)


class EightBillion:
    """LLaDA-8B-Instruct as its headers and config describe it."""

    parameters = 8_015_581_184
    stored_dtypes = ("BF16",)
    context_length = 4096

    class config:  # noqa: N801
        vocab_size, hidden_size, intermediate_size = 126_464, 4096, 12_288
        tie_word_embeddings = False


GB = 10**9


@pytest.fixture
def slow_in_16_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rho_eos.models.placement._capabilities", dict)


@pytest.mark.usefixtures("slow_in_16_bit")
def test_eight_billion_parameters_on_machines_of_several_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
        "these would fit: --quantization int4 (7.3 GB)"
    )
    with pytest.raises(UserError, match="nothing that is offered here would fit"):
        chosen(4)


def test_where_nobody_can_say_how_much_is_free_it_is_tried(
    monkeypatch: pytest.MonkeyPatch, byte_checkpoint: Path
) -> None:
    free(monkeypatch, None)
    assert "free" not in LLM(str(byte_checkpoint)).placement.sentence


def test_the_line_at_the_start_and_too_little_memory(
    monkeypatch: pytest.MonkeyPatch, byte_checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["rho-eos", "generate", "x", "--model", str(byte_checkpoint), "--max-new-tokens", "8"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as done:
        main()
    [line] = capsys.readouterr().err.splitlines()
    assert not done.value.code
    assert line.startswith(f"rho-eos: {byte_checkpoint}: cpu, float32, not quantised; needs ")
    assert "are free" in line
    free(monkeypatch, 1000)
    with pytest.raises(SystemExit) as refused:
        main()
    [line] = capsys.readouterr().err.splitlines()
    assert refused.value.code == 2
    assert "but 0.0 MB are free" in line


def test_info_describes_what_would_not_fit(
    monkeypatch: pytest.MonkeyPatch, byte_checkpoint: Path
) -> None:
    free(monkeypatch, 10)
    config = EngineConfig(model=str(byte_checkpoint))
    checkpoint = open_checkpoint(config)
    with pytest.raises(UserError, match=r"needs .* but 0\.0 MB are free"):
        place(config, checkpoint, CPU)
    assert describe(config, checkpoint, CPU).free == 10


def test_quantisation_is_part_of_what_answers(byte_checkpoint: Path) -> None:
    plain, small = (
        model_identity(EngineConfig(model=str(byte_checkpoint), quantization=kind))
        for kind in ("none", "int4")
    )
    assert plain["weights"] == small["weights"] and plain != small
    assert (small["dtype"], small["compute_dtype"]) == ("float32", "float32")
    assert small["quantization"] == "int4"


def test_it_can_be_written_as_json(byte_checkpoint: Path) -> None:
    facts = json.loads(json.dumps(LLM(str(byte_checkpoint)).placement.as_dict()))
    assert facts["device"] == "cpu" and facts["memory_needed"] > 0


def test_free_memory_of_this_machine() -> None:
    found = placement.free_memory(CPU)
    assert found is None or found > 2**20
    assert placement.gigabytes(12_340_000_000) == "12.3 GB"
