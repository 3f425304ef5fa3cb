"""A wheel of this tree, installed where nothing but its declared core dependencies can be seen.

It proves that the wheel holds what it needs (checkpoint, pages, task files), that `dependencies`
names everything the core commands import, and that every other command names its extra. The core
dependencies themselves are those of this environment, reached by links: pip resolves nothing here.
"""

import json
import subprocess
import sys
import venv
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROMPT = "Mia has 8 plums. 1) buys 6. 2) eats 5. How many are there now?"
#: Runs commands one after the other in one process, as `main` would, and tells what they did.
DRIVER = """
import contextlib, io, json, sys
from rho_eos.cli import main
results = []
for words in json.load(sys.stdin):
    sys.argv = ["rho-eos", *words]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main()
        except SystemExit as ended:
            code = ended.code
    results.append([code or 0, out.getvalue(), err.getvalue()])
import rho_eos
print(json.dumps([rho_eos.__file__, results]))
"""
GOLD = ["eval", "--policy", "gold", "--limit", "1"]
NEEDS_EXTRA = {
    "serve": ["serve", "--model", "tiny"],
    "serve,ray": ["serve", "--ray"],
    "ray": ["generate", "--input", "in.jsonl", "--output", "out.jsonl", "--ray"],
    "lm-eval": ["lm-eval", "--model", "rho_eos", "--tasks", "tiny_gsm_rho"],
    "plots": ["reproduce", "figures", "--limit", "1", "--out", "reproduction"],
    "eval": [*GOLD, "--tasks", "math500", "--data", "math500.jsonl", "--out", "math"],
    "hub-data": ["eval", "--tasks", "gsm8k", "--out", "run"],
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("rho_eos-*.whl")
    home = folder / "environment"
    venv.create(home, symlinks=True, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install"]
    quick = ["--no-deps", "--no-index", "--no-compile", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *quick, str(wheel)], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (installed,) = packages.glob("rho_eos-*.dist-info")
    core = folder / "core"
    core.mkdir()
    _link_closure(Distribution.at(installed), core)
    (packages / "core.pth").write_text(f"{core}\n")
    return home


def _link_closure(root: Distribution, core: Path) -> None:
    """Link all that the core dependencies and theirs consist of, without any extra of ours."""
    waiting = [_named(text) for text in root.requires or [] if _applies(text, "")]
    seen: set[tuple[str, str]] = set()
    while waiting:
        name, extras = waiting.pop()
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue  # an optional part that is not here either
        for extra in {"", *extras}:
            if (name, extra) not in seen:
                seen.add((name, extra))
                waiting += [_named(text) for text in found.requires or [] if _applies(text, extra)]
        for top in {Path(file).parts[0] for file in found.files or []} - {"..", "__pycache__"}:
            target, link = Path(str(found.locate_file(top))), core / top
            if target.exists() and not link.exists():
                link.symlink_to(target)


def _named(text: str) -> tuple[str, frozenset[str]]:
    requirement = Requirement(text)
    return requirement.name, frozenset(requirement.extras)


def _applies(text: str, extra: str) -> bool:
    marker = Requirement(text).marker
    return marker is None or marker.evaluate({"extra": extra})


def test_the_core_commands_run_and_the_others_name_their_extra(
    environment: Path, tmp_path: Path
) -> None:
    script = environment / "bin" / "rho-eos"
    version = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    (installed,) = environment.glob("lib/python*/site-packages/rho_eos-*.dist-info")
    about = Distribution.at(installed)
    assert version.stdout == f"rho-eos {about.version}\n"
    assert "rho_eos/py.typed" in map(str, about.files or [])
    (tmp_path / "in.jsonl").write_text(json.dumps({"prompt": PROMPT}) + "\n")
    math = ROOT / "tests" / "data" / "evals" / "math500.jsonl"
    (tmp_path / "math500.jsonl").write_text(math.read_text())
    core = [
        ["generate", PROMPT],
        ["watch", PROMPT, "--delay", "0"],
        ["info", "tiny"],
        ["info", "terse"],
        ["eval", "--tasks", "tiny-gsm", "--limit", "1", "--out", "core"],
        ["inspect", "core"],
    ]
    commands = [*core, *NEEDS_EXTRA.values()]
    done = subprocess.run(
        [environment / "bin" / "python", "-c", DRIVER],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    file, results = json.loads(done.stdout.splitlines()[-1])
    assert Path(file).is_relative_to(environment)
    for words, (code, out, err) in zip(core, results, strict=False):
        assert code == 0, (words, err)
        assert "#### 9" in out or words[0] not in ("generate", "watch"), out
    for (extra, words), (code, _, err) in zip(
        NEEDS_EXTRA.items(), results[len(core) :], strict=True
    ):
        last = err.splitlines()[-1] if err else ""
        assert (code, "Traceback" in err) == (2, False), (words, code, err)
        assert f"pip install 'rho-eos[{extra}]'" in last, (words, err)
