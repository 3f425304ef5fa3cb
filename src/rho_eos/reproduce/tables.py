"""The paper's tables with our numbers, and how surely ρ-EOS differs from its rivals."""

from rho_eos.evals.runs.compare import COLUMNS, Run, tests_of
from rho_eos.evals.runs.report import summarise, summary_table
from rho_eos.evals.runs.table import Table
from rho_eos.evals.studies.contenders import DAEDAL, RHO_ASYM, RHO_SYM
from rho_eos.evals.studies.result import Result
from rho_eos.evals.studies.study import Plan, Study
from rho_eos.reproduce.plan import BY_THRESHOLD
from rho_eos.reproduce.profiles import PAPER, Profile
from rho_eos.reproduce.published import SOURCE, beside_published, paper_model

#: Of the column that names the rows, where that is not the policy.
HEADINGS = {"thresholds": "[ρ_low, ρ_high]", "expansion": "E(ρ)", "signals": "stages, signal"}
ONE_TOKEN = "One token a step is as published: the canvas is decoded to its end."
SOME_ONE_TOKEN = (
    " In this profile it is run at lengths up to {longest} and on at most {samples} samples: mind "
    "n before comparing seconds."
)
COMPARISON = "ρ-EOS against fixed length and DAEDAL"
BEST_FIXED = (
    "The best fixed length is the one with the highest accuracy on these very samples (the cheaper "
    "of equals): nobody knows it beforehand, so this is the hardest opponent. Acc is a difference "
    "in points, costs are multiples; intervals are paired bootstraps, p is exact (McNemar's test "
    "for accuracy, the sign test for costs)."
)


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
    notes = [f"{study.config.model}, {asked}; mean ± standard error over samples."]
    if profile is not PAPER:
        notes.append(
            f"Lengths are those of the profile {profile.name}: L_init {profile.lengths[0]}, "
            f"L_max {profile.lengths[-1]}, blocks of {profile.block_length}; "
            "the paper's are 64, 2048 and 32."
        )
    if plan.name == "main":
        longest, samples = max(profile.one_token_lengths), profile.one_token_samples
        some = "" if samples is None else SOME_ONE_TOKEN.format(longest=longest, samples=samples)
        notes.append(ONE_TOKEN + some)
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
    return Result("comparison", COMPARISON, Table(COLUMNS, rows, labels=4), [BEST_FIXED])


def _merit(run: Run) -> tuple[float, float]:
    """More accurate is better; of equals, cheaper."""
    [summary] = summarise(run[1])
    return summary.accuracy.mean, -summary.costs["positions_evaluated"].mean
