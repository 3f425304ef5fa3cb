"""`index.md`: one page that links everything a folder of reproductions holds."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rho_eos import __version__
from rho_eos.base.errors import UserError
from rho_eos.reproduce.cells import Study
from rho_eos.reproduce.plan import TABLES
from rho_eos.reproduce.survey import SURVEYS
from rho_eos.reproduce.survey_table import VERDICT

ABOUT = "reproduction.json"
TABLE_TITLES = {name: title for name, title, *_ in TABLES} | {
    "comparison": "ρ-EOS against fixed length and DAEDAL",
    **{name: kind.title for name, kind in SURVEYS.items()},
}
FIGURE_TITLES = {
    "rho-over-steps": "ρ over steps at fixed lengths",
    "expansion-functions": "The expansion functions E(ρ)",
    "e-ratio": "E_ratio against N_token, sample by sample",
    "convergence": "Convergence of ρ: fixed lengths, and ρ-EOS from several initial lengths",
    "trade-off": "Accuracy against cost: the main table as a picture",
    **{name: f"{kind.title}, as a picture" for name, kind in SURVEYS.items()},
}


def about(study: Study) -> dict[str, Any]:
    return {
        "model": study.config.model,
        "weights": study.weights,
        "profile": study.profile.name,
        "limit": study.limit,
        "skip": study.skip,
        "repeats": study.repeats,
        "shuffle_seed": study.shuffle_seed,
        "rho-eos": __version__,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def read_about(folder: Path) -> dict[str, Any] | None:
    """What a folder reproduces; None if nothing yet."""
    path = folder / ABOUT
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        content["model"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    return content


def write_index(folder: Path) -> None:
    facts = read_about(folder)
    assert facts is not None
    samples = "all samples" if facts["limit"] is None else f"at most {facts['limit']} samples"
    surveys_only = not any((folder / f"{name}.md").exists() for name, *_ in TABLES)
    lines = [
        "# Ways to choose a length"
        if surveys_only
        else "# Reproduction of ρ-EOS (arXiv 2601.22527)",
        "",
        f"Model `{facts['model']}` (weights {facts['weights']}), profile {facts['profile']}, "
        f"{samples} of each task, rho-eos {facts['rho-eos']}, {facts['made']}.",
        "",
        *(line for name in SURVEYS for line in _verdicts(folder / f"{name}.md")),
        "## Tables",
        "",
        *(
            f"- [{title}]({name}.md) · [CSV]({name}.csv) · [LaTeX]({name}.tex)"
            for name, title in TABLE_TITLES.items()
            if (folder / f"{name}.md").exists()
        ),
        "",
        "## Figures",
        "",
    ]
    for name, title in FIGURE_TITLES.items():
        if (folder / f"{name}.png").exists():
            lines += [f"![{title}]({name}.png)", "", f"{title} · [SVG]({name}.svg)", ""]
    lines += ["Every answer is in `cells/`: see `rho-eos inspect` and `rho-eos compare`."]
    (folder / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _verdicts(table: Path) -> list[str]:
    """What a survey says at its end, one paragraph for each of its sections."""
    if not table.exists():
        return []
    paragraphs = table.read_text(encoding="utf-8").split("\n\n")
    return [line for each in paragraphs if VERDICT in each for line in (each.strip(), "")]
