"""The paper's tables with our numbers, how surely ρ-EOS differs from its rivals, and the index."""

from collections.abc import Iterable
from typing import Any

from rho_eos import __version__
from rho_eos.evals.runs.compare import COLUMNS, Run, tests_of
from rho_eos.evals.runs.report import summarise, summary_table
from rho_eos.evals.runs.table import Table
from rho_eos.evals.studies.contenders import DAEDAL, RHO_ASYM, RHO_SYM
from rho_eos.evals.studies.study import Plan, Result, Study, drawing
from rho_eos.reproduce.plan import BY_THRESHOLD, FIGURES, PAPER, TABLES, Profile
from rho_eos.reproduce.published import SOURCE, beside_published, paper_model

#: Of the column that names the rows, where that is not the policy.
HEADINGS = {"thresholds": "[ρ_low, ρ_high]", "expansion": "E(ρ)", "signals": "stages, signal"}
TITLES = TABLES | {"comparison": "ρ-EOS against fixed length and DAEDAL"}
FIGURE_TITLES = {
    "rho-over-steps": "ρ over steps at fixed lengths",
    "expansion-functions": "The expansion functions E(ρ)",
    "e-ratio": "E_ratio against N_token, sample by sample",
    "convergence": "Convergence of ρ: fixed lengths, and ρ-EOS from several initial lengths",
}
SHOWN = "accuracy with its 95% interval, all else mean ± standard error over samples."
BEST_FIXED = (
    "The best fixed length is the one with the τ rule that has the highest accuracy on these very "
    "samples (the cheaper of equals): nobody knows it beforehand, so this is the hardest opponent "
    "that decodes by the same rule. Acc is a difference "
    "in points, costs are multiples; intervals are Newcombe's for accuracy and paired bootstraps "
    "for costs, p is exact (McNemar's test for accuracy, the sign test for costs)."
)


def reproduce(
    study: Study, profile: Profile, plans: Iterable[Plan], finished: Iterable[Plan]
) -> list[Result]:
    """The tables, all of them on disk together with the figures and the index.

    Args:
        study: Where the answers are.
        profile: What the plans were made for.
        plans: What is asked for.
        finished: The same, each plan when its answers are there.
    """
    drawn: Any = None
    if any(plan.name in FIGURES for plan in plans):
        drawn = drawing("rho_eos.reproduce.figures")
    results = []
    for plan in finished:
        if plan.name in FIGURES:
            drawn.write_figures(study, plan)
        else:
            made = [table_of(study, profile, plan)]
            made += [comparison_of(study, plan)] if plan.name == "main" else []
            for result in made:
                result.write(study.folder)
            results += made
        write_index(study)
    return results


def table_of(study: Study, profile: Profile, plan: Plan) -> Result:
    runs = [
        (
            row.label,
            [one for task in plan.tasks for one in summarise(study.cell(row, task).lines())],
        )
        for row in plan.rows
    ]
    ours = summary_table(runs, HEADINGS.get(plan.name, "policy"))
    table = beside_published(study.config.model, plan.name, ours)
    return Result(plan.name, plan.title, table, [_note(study, profile, plan)])


def _note(study: Study, profile: Profile, plan: Plan) -> str:
    asked = study.samples_note()
    notes = [f"{study.config.model}, {asked}; {SHOWN}"]
    if profile is not PAPER:
        notes.append(
            f"Lengths are those of the profile {profile.name}: L_init {profile.lengths[0]}, "
            f"L_max {profile.lengths[-1]}, blocks of {profile.block_length}; "
            "the paper's are 64, 2048 and 32."
        )
    if plan.name == "main":
        notes.append("One token a step is as published: the canvas is decoded to its end.")
    if paper_model(study.config.model):
        notes.append(f"paper: {SOURCE}, on whole benchmarks, three repeats; its own machine.")
    return " ".join(notes)


def comparison_of(study: Study, main: Plan) -> Result:
    """ρ-EOS against the best fixed length under the same commit rule, and against DAEDAL."""
    rows = []
    for task in main.tasks:
        runs: dict[str, Run] = {
            row.label: (row.label, study.cell(row, task).lines()) for row in main.rows
        }
        fixed = [runs[row.label] for row in main.rows if row.series == BY_THRESHOLD]
        for rival in (max(fixed, key=_merit), runs[DAEDAL]):
            rows += tests_of(task, rival, [runs[RHO_ASYM], runs[RHO_SYM]])
    return Result("comparison", TITLES["comparison"], Table(COLUMNS, rows, labels=4), [BEST_FIXED])


def _merit(run: Run) -> tuple[float, float]:
    """What rows are ranked by: more accurate is better, and among equals cheaper is."""
    [summary] = summarise(run[1])
    return summary.accuracy.mean, -summary.costs["positions_evaluated"].mean


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
            for name, title in TITLES.items()
            if (folder / f"{name}.md").exists()
        ),
        "\n## Figures\n",
        *(
            f"![{title}]({name}.png)\n\n{title} · [SVG]({name}.svg) · [PDF]({name}.pdf)\n"
            for name, title in FIGURE_TITLES.items()
            if (folder / f"{name}.png").exists()
        ),
        "Every answer is in `cells/`: see `rho-eos inspect` and `rho-eos compare`.\n",
    ]
    (folder / "index.md").write_text("\n".join(lines), encoding="utf-8")
