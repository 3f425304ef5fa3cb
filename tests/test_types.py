"""What a type checker tells a user of the package about their own file."""

import subprocess
import sys
from pathlib import Path

import rho_eos

RIGHT = """
from rho_eos import LLM, DecodeParams, EngineConfig, Output

llm = LLM("tiny", device="cpu", dtype="bfloat16", max_rows=4, plugin=["own.py"])
config = EngineConfig(model="tiny", device="cpu")
params = DecodeParams(preset="asym", initial_length=64, max_new_tokens=1024)
outputs: list[Output] = llm.generate(["one", "two"], params)
texts: list[str] = [output.text for output in outputs]
ratio: float = outputs[0].usage.e_ratio
for event in llm.stream("three", params):
    delta: str = event.delta
"""
#: Each of these lines is a mistake.
WRONG = """
LLM("tiny", devize="cpu")
LLM("tiny", dtype="float64")
LLM("tiny", max_rows="many")
EngineConfig(devize="cpu")
llm.generate(["one"], params)[0].txt
nothing: int = llm.generate(["one"], params)[0].text
"""
#: Other people's packages take half a minute to read, and these lines do not depend on them.
SETTINGS = """
[mypy]
strict = true
[mypy-torch.*,transformers.*,numpy.*,tokenizers.*,safetensors.*,huggingface_hub.*,jinja2.*]
follow_imports = skip
[mypy-rho_eos.*]
follow_imports = silent
"""


def test_a_strict_checker_sees_mistakes_and_nothing_else(tmp_path: Path) -> None:
    own, settings = tmp_path / "own.py", tmp_path / "mypy.ini"
    own.write_text(RIGHT + WRONG)
    settings.write_text(SETTINGS)
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", settings, "--cache-dir", tmp_path, own],
        env={"MYPYPATH": str(Path(rho_eos.__file__).parents[1])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    errors = [line for line in found.stdout.splitlines() if ": error: " in line]
    first = RIGHT.count("\n") + 2
    wrong = list(range(first, first + WRONG.count("\n") - 1))
    assert [int(line.split(":")[1]) for line in errors] == wrong, found.stdout + found.stderr
