"""The files of a probe: `probe.html` and `probe.json`, from one line a prompt."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rho_eos import __version__
from rho_eos.config import EngineConfig
from rho_eos.evals.probing.findings import advice, findings
from rho_eos.evals.probing.page import page
from rho_eos.evals.probing.settings import Probe
from rho_eos.evals.runs.provenance import model_identity
from rho_eos.evals.runs.run_folder import write_json
from rho_eos.llm import LLM


def begin(config: EngineConfig, probe: Probe) -> dict[str, Any]:
    """What decides the lines of a probe: with other settings its folder is not continued. More
    prompts may be asked for later."""
    settings = probe.model_dump(mode="json", exclude={"limit"})
    return {"probe": settings, "engine": model_identity(config)}


def write(
    folder: Path,
    config: EngineConfig,
    probe: Probe,
    llm: LLM,
    lines: Sequence[Mapping[str, Any]],
    drift: float | None,
    against: str,
) -> list[str]:
    """Write both files; returns the advice."""
    found = findings(lines, drift, against)
    source = ", ".join(probe.tasks) or probe.prompts or "the prompts that come with rho-eos"
    facts = {
        "prompts": f"{found.prompts} of {source}",
        "canvases": ", ".join(str(each.length) for each in found.canvases),
        "texts written on": f"{min(probe.write, llm.context_length // 2)} MASKs, τ 0.9, blocks of "
        f"32, temperature {probe.temperature:g}",
        "runs on": llm.placement.sentence,
        "rho-eos": __version__,
    }
    words = (
        "What it says of the length of its texts, and whether that is true, on "
        f"{found.prompts} prompts."
    )
    command = ["rho-eos", "probe", config.model, "--out", folder.name]
    command += [word for task in probe.tasks for word in ("--tasks", task)]
    command += ["--prompts", probe.prompts] if probe.prompts is not None else []
    about = {"model": config.model, "words": words, "facts": facts, "command": shlex.join(command)}
    write_json(folder / "probe.json", {"about": about, **found.as_dict()})
    (folder / "probe.html").write_text(page(found, about), encoding="utf-8")
    return advice(found)
