"""Checkpoints that are not what they say: one sentence each, soon, and without much memory."""

import base64
import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from rho_eos import LLM, DecodeParams, UserError
from rho_eos.engine.errors import EngineError
from rho_eos.models.sanity import check_tokenizer, described_parameters
from tests.conftest import DATA
from tests.evals.command import Command
from tests.models.parity import SECONDS, within

Change = Callable[[Path], object]
PARAMS = DecodeParams(initial_length=8, max_new_tokens=8)


def edited(name: str, **fields: Any) -> Change:
    """A JSON file with other fields; `...` takes one out."""

    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text()) | fields
        content = {key: value for key, value in content.items() if value is not ...}
        (folder / name).write_text(json.dumps(content))

    return change


def config(**fields: Any) -> Change:
    return edited("config.json", **fields)


def written(name: str, content: str | bytes) -> Change:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


def replaced(name: str, make: Callable[[Path], object]) -> Change:
    """Something else than a regular file in the place of one."""

    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return change


def sparse(name: str, size: int) -> Change:
    return lambda folder: os.truncate(folder / name, size)


def index(**content: Any) -> Change:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "model-1.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps(content))

    return change


def header(tensors: Any, data: bytes = b"", length: int | None = None) -> Change:
    text = tensors if isinstance(tensors, bytes) else json.dumps(tensors).encode()
    size = struct.pack("<Q", len(text) if length is None else length)
    return written("model.safetensors", size + text + data)


def tensor(dtype: str, shape: list[int], offsets: list[int]) -> Change:
    return header({"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}, b"\x00" * 4)


def template(text: Any) -> Change:
    def change(folder: Path) -> None:
        (folder / "chat_template.jinja").unlink(missing_ok=True)
        edited("tokenizer_config.json", chat_template=text)(folder)

    return change


BAD_FIELDS: dict[str, list[Any]] = {
    "d_model": ["64", 0, -32, 32.5, [32], 10**9, 10**30, True, ...],
    "n_heads": [0, "2", -1, {}, 10**6, ...],
    "n_kv_heads": ["two", -1],
    "n_layers": [0, 10**6, 10**12, [], ...],
    "vocab_size": ["many", -1],
    "embedding_size": ["many", 10**12],
    "mlp_hidden_size": ["wide", -5, 10**12],
    "mlp_ratio": [[]],
    "max_sequence_length": ["long", 0, None],
    "rope_theta": ["fast", -1],
    "rms_norm_eps": ["small", {}],
    "weight_tying": ["maybe"],
    "mask_token_id": ["<mask>", [[]], 10**9, 1.5],
    "eos_token_id": [["a"], {}, -1],
    "model_type": [[], {"a": 1}, None],
    "activation_type": [7],
    "quantization_config": [{"quant_method": "gptq", "bits": 4}, "int4"],
    "rope_scaling": ["yarn"],
    "rope_parameters": [[1]],
    "num_labels": [10**9, "many", -1],
    "architectures": [["\x1b]0;owned\x07"]],
    "\x1b[2J": [1],
    "nested": [{"deeper": ["\x9b31m"]}],
}
BAD_FITS = {  # sizes that are sane but not those of the weights
    "many layers": config(n_layers=1000),
    "wide": config(d_model=65_536, n_heads=1024),
    "inner": config(mlp_hidden_size=2**24),
    "vocabulary": config(embedding_size=2**24, vocab_size=2**24),
    "odd heads": config(n_heads=32),
    "uneven heads": config(n_kv_heads=3, n_heads=4),
}
BAD_FILES = {
    "empty config": written("config.json", ""),
    "config is a list": written("config.json", "[]"),
    "config is half": written("config.json", '{"model_type": "llada"'),
    "config is nested": written("config.json", "[" * 200_000),
    "config is no text": written("config.json", b"\xff\xfe\x00"),
    "config has NaN": lambda folder: (folder / "config.json").write_text(
        (folder / "config.json").read_text().replace('"rope_theta": 500000.0', '"rope_theta": NaN')
    ),
    "config has a long number": written("config.json", '{"d_model": ' + "1" * 5000 + "}"),
    "config is huge": sparse("config.json", 2**33),
    "config is missing": lambda folder: (folder / "config.json").unlink(),
    **{
        f"{kind} {name}": replaced(name, make)
        for kind, make in {
            "fifo": os.mkfifo,
            "device": lambda path: path.symlink_to("/dev/zero"),
            "directory": Path.mkdir,
        }.items()
        for name in ("config.json", "tokenizer.json", "model.safetensors")
    },
    **{
        f"fifo {name}": replaced(name, os.mkfifo)
        for name in (
            *("tokenizer_config.json", "chat_template.jinja", "generation_config.json"),
            *("special_tokens_map.json", "added_tokens.json"),
        )
    },
    "fifo index": lambda folder: (
        (folder / "model.safetensors").unlink(),
        os.mkfifo(folder / "model.safetensors.index.json"),
    ),
    "empty tokenizer": written("tokenizer.json", ""),
    "tokenizer is a list": written("tokenizer.json", "[]"),
    "tokenizer is nested": written("tokenizer.json", "[" * 200_000),
    "tokenizer without a model": written("tokenizer.json", '{"version": "1.0"}'),
    "tokenizer is huge": sparse("tokenizer.json", 2**33),
    "tokenizer settings are a list": written("tokenizer_config.json", "[]"),
    "tokenizer settings are nested": written("tokenizer_config.json", '{"a":' * 100_000),
    "tokenizer class is a list": edited("tokenizer_config.json", tokenizer_class=["A"]),
    "tokenizer's tokens are numbers": edited("tokenizer_config.json", eos_token=7),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "empty weights": written("model.safetensors", b""),
    "short weights": written("model.safetensors", b"\x00" * 7),
    "header beyond the file": header({}, length=2**40),
    "header is no JSON": header(b"nonsense"),
    "header is a list": header([]),
    "header is nested": header(b"[" * 100_000),
    "no tensors": header({}),
    "offsets beyond the file": tensor("F32", [2**30], [0, 2**32]),
    "shape overflows": tensor("F32", [2**40, 2**40], [0, 4]),
    "negative shape": tensor("F32", [-1], [0, 4]),
    "unknown dtype": tensor("F33", [1], [0, 4]),
    "sparse weights": sparse("model.safetensors", 2**42),
}


def rules(part: str, *rules: dict[str, Any]) -> Change:
    inner = {"normalizer": "normalizers", "decoder": "decoders"}[part]
    return edited("tokenizer.json", **{part: {"type": "Sequence", inner: list(rules)}})


def replace(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def charsmap() -> dict[str, Any]:
    """One that makes a million letters of a character, as sentencepiece would store it."""
    table = (4).to_bytes(4, "little") + bytes(4) + b"x" * 10**6 + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


#: Each makes gigabytes of a few words, or does so with the next one.
BAD_RULES = {
    "letters that double": rules("normalizer", *[replace("ee", String="e")] * 30),
    "one that is long": rules("normalizer", replace("e" * 10**6, String="e")),
    "between all letters": rules("normalizer", *[replace("xy", Regex="(?:)")] * 20),
    "nested": rules(
        "normalizer", {"type": "Sequence", "normalizers": [replace("ee", String="e")] * 30}
    ),
    "in front": rules("normalizer", *[{"type": "Prepend", "prepend": "e" * 999}] * 2),
    "a table": rules("normalizer", charsmap()),
    "in the decoder": rules("decoder", *[replace("ee", String="e")] * 30),
    "extra ids": edited("tokenizer_config.json", extra_ids=10**9),
    "a name that clears the screen": edited("tokenizer_config.json", tokenizer_class="\x1b[2J"),
}
BAD_INDEXES = {
    "parent": index(weight_map={"a": "../model-1.safetensors"}),
    "absolute": index(weight_map={"a": "/etc/passwd"}),
    "absolute weights": index(weight_map={"a": str(DATA / "model.safetensors")}),
    "dots": index(weight_map={"a": ".."}),
    "backslash": index(weight_map={"a": "..\\model-1.safetensors"}),
    "deep": index(weight_map={"a": "sub/model-1.safetensors"}),
    "pickle": index(weight_map={"a": "pytorch_model.bin"}),
    "nul": index(weight_map={"a": "model-1\0.safetensors"}),
    "a list": index(weight_map=["model-1.safetensors"]),
    "a number": index(weight_map=7),
    "numbers": index(weight_map={"a": 7}),
    "empty": index(weight_map={}),
    "missing": index(),
    "absent file": index(weight_map={"a": "model-2.safetensors"}),
    "one more": index(weight_map={"a": "model-1.safetensors", "b": "../../x.safetensors"}),
}
BAD_TEMPLATES = {
    "divides by zero": template("{{ 1 // 0 }}"),
    "3 GB": template("{{ 'x' * 3000000000 }}"),
    "syntax": template("{% if %}"),
    "a number": template(5),
    "a list": template(["a"]),
    "a list of templates": template([{"name": "tool_use", "template": "x"}]),
    "an empty one": template(""),
    "half a character": template("{{ '\\ud800' }}"),
    "a huge file": lambda folder: (folder / "chat_template.jinja").write_text("x" * 2**21),
}
CASES: dict[str, Change] = {
    **{
        f"{field} {str(value)[:20]}": config(**{field: value})
        for field, values in BAD_FIELDS.items()
        for value in values
    },
    **{f"fit: {name}": change for name, change in BAD_FITS.items()},
    **{f"file: {name}": change for name, change in BAD_FILES.items()},
    **{f"rules: {name}": change for name, change in BAD_RULES.items()},
    **{f"index: {name}": change for name, change in BAD_INDEXES.items()},
    **{f"template: {name}": change for name, change in BAD_TEMPLATES.items()},
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_one_sentence(name: str, byte_checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(byte_checkpoint, folder)
    CASES[name](folder)
    before = psutil.Process().memory_info().rss
    with within(SECONDS), pytest.raises(UserError) as refused:
        LLM(str(folder)).generate(["hello"], PARAMS)
    said = " ".join(str(refused.value).split())
    assert 10 < len(said) < 1500 and said.isprintable(), said
    assert psutil.Process().memory_info().rss - before < 500 * 2**20


def test_the_same_checkpoint_unchanged_is_fine(byte_checkpoint: Path, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(byte_checkpoint, folder)
    assert LLM(str(folder)).generate(["hello"], PARAMS)[0].finish_reason


def test_a_tokenizer_that_panics_fails_its_request_alone(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    """Its decoder cuts more from each token than there is, which ends in a panic in Rust."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(byte_checkpoint, folder)
    cut = {"type": "Strip", "content": "a", "start": 0, "stop": 9}
    rules("decoder", replace("a", Regex=r"[\s\S]"), cut)(folder)
    llm = LLM(str(folder))
    for _ in range(2):
        with pytest.raises(EngineError, match="tokenizer failed"):
            llm.generate(["hello"], PARAMS)
    assert not llm.engine.has_work


def test_what_is_shown_of_a_token_commands_no_terminal(
    byte_checkpoint: Path, tmp_path: Path, command: Command
) -> None:
    """Such a token in tokenizer.json alone is shown; the settings may not name it."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(byte_checkpoint, folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        path = folder / name
        path.write_text(path.read_text().replace("<|endoftext|>", "<\\u001b[2J>"))
        shown = command("info", folder)
        assert "\x1b" not in shown.out + shown.err and r"\x1b[2J" in shown.out + shown.err, shown
    assert shown.code == 2


def test_rules_of_published_tokenizers_are_accepted() -> None:
    """Llama's, Gemma's and T5's, as their files have them."""
    llama = [{"type": "Prepend", "prepend": "▁"}, replace("▁", String=" ")]
    byte = [replace(" ", String="▁"), {"type": "ByteFallback"}, {"type": "Fuse"}]
    albert = [replace('"', String="``"), replace('"', String="''"), {"type": "NFKD"}]
    for normalizer in (llama, [*albert, replace(" ", Regex=" {2,}")]):
        check_tokenizer(
            {
                "normalizer": {"type": "Sequence", "normalizers": normalizer},
                "decoder": {"type": "Sequence", "decoders": byte},
            }
        )


def test_ids_beyond_the_vocabulary_are_refused(byte_checkpoint: Path, tmp_path: Path) -> None:
    """A tokenizer of another model: its ids would be read beyond the end of the embedding."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(byte_checkpoint, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["h"] = 5000
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(UserError, match="5000"):
        LLM(str(folder)).generate(["hello"], PARAMS)


PUBLISHED = sorted(path for path in (DATA / "parity").iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_the_count_of_what_a_config_describes_is_about_right(
    folder: Path, parity_model: Callable[[str], Any]
) -> None:
    """Counted from the config, it must not refuse a model of any family."""
    model = parity_model(folder.name)
    real = sum(weight.numel() for weight in model.parameters())
    assert 0.85 * real < described_parameters(model.config) < 1.05 * real
