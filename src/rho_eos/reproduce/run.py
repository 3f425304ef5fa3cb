"""Run what is missing, then make the tables and figures of what is there, and a page of links."""

from collections.abc import Callable, Sequence
from typing import Any

from rho_eos import __version__
from rho_eos.evals.runs.sources import AnswerSource
from rho_eos.evals.studies.result import Result
from rho_eos.evals.studies.study import Plan, Study, Watch, drawing
from rho_eos.reproduce.plan import TITLES
from rho_eos.reproduce.profiles import Profile
from rho_eos.reproduce.tables import COMPARISON, comparison_of, table_of

TABLE_TITLES = TITLES | {"comparison": COMPARISON}
FIGURE_TITLES = {
    "rho-over-steps": "ρ over steps at fixed lengths",
    "expansion-functions": "The expansion functions E(ρ)",
    "e-ratio": "E_ratio against N_token, sample by sample",
    "convergence": "Convergence of ρ: fixed lengths, and ρ-EOS from several initial lengths",
}


def reproduce(
    study: Study,
    profile: Profile,
    tables: Sequence[Plan],
    figures: Sequence[Plan],
    open_source: Callable[[], AnswerSource],
    watch: Watch,
    unsafe_code: bool = False,
) -> list[Result]:
    """The tables, all of them on disk together with the figures and the index."""
    drawn: Any = drawing("rho_eos.reproduce.figures") if figures else None
    study.begin(study.cells([*tables, *figures]), unsafe_code)
    results = []
    for plan in tables:
        study.run(plan, open_source, watch, unsafe_code)
        made = [table_of(study, profile, plan)]
        made += [comparison_of(study, plan)] if plan.name == "main" else []
        for result in made:
            result.write(study.folder)
        results += made
        write_index(study)
    if figures:
        for plan in figures:
            study.run(plan, open_source, watch, unsafe_code)
        drawn.write_figures(study, *figures)
        write_index(study)
    return results


def write_index(study: Study) -> None:
    """`index.md`: one page that links all tables and figures that the folder holds."""
    folder, facts = study.folder, study.asked()
    lines = [
        "# Reproduction of ρ-EOS (arXiv 2601.22527)\n",
        f"Model `{facts['model']}` (weights {facts['weights']}), {study.samples_note()}, "
        f"rho-eos {__version__}.\n",
        "## Tables\n",
        *(
            f"- [{title}]({name}.md) · [CSV]({name}.csv) · [LaTeX]({name}.tex)"
            for name, title in TABLE_TITLES.items()
            if (folder / f"{name}.md").exists()
        ),
        "\n## Figures\n",
        *(
            f"![{title}]({name}.png)\n\n{title} · [SVG]({name}.svg)\n"
            for name, title in FIGURE_TITLES.items()
            if (folder / f"{name}.png").exists()
        ),
        "Every answer is in `cells/`: see `rho-eos inspect` and `rho-eos compare`.\n",
    ]
    (folder / "index.md").write_text("\n".join(lines), encoding="utf-8")
