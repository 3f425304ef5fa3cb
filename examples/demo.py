"""ρ-EOS beside fixed length and DAEDAL: the same prompts, the same model, what each of them costs.

Run it with `make demo`. It needs nothing but the embedded model.
"""

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rho_eos import LLM, DecodeParams, Output
from rho_eos.evals import find_task
from rho_eos.evals.tasks.embedded import sample_of
from rho_problems import TASKS

#: A short and a long problem: no single fixed length suits both.
PROMPTS = {
    "tiny-gsm": (2, 9),
    "tiny-math": (2, 8),
    "tiny-mbpp": (2, 8),
    "tiny-humaneval": (2, 8),
}
FIXED = 256
POLICIES = {
    f"fixed {FIXED}": DecodeParams(policy="fixed", initial_length=FIXED),
    "fixed 32": DecodeParams(policy="fixed", initial_length=32),
    "DAEDAL": DecodeParams(policy="daedal", initial_length=32),
    "ρ-EOS": DecodeParams(policy="rho-eos", initial_length=32),
}


def main() -> None:
    console = Console(highlight=False, width=min(Console().width, 110))
    problems = [
        (find_task(name), TASKS[name].problem(seed, difficulty))
        for name, difficulties in PROMPTS.items()
        for seed, difficulty in enumerate(difficulties)
    ]
    llm = LLM("tiny")
    prompts = [problem.prompt for _, problem in problems]
    llm.generate(prompts[:1])  # the first forward of a process is slow; it should not count
    results: dict[str, list[Output]] = {}
    for name, params in POLICIES.items():
        with console.status(f"{name} …"):
            results[name] = llm.generate(prompts, params)

    console.rule("What ρ-EOS answers")
    for (task, problem), output in zip(problems, results["ρ-EOS"], strict=True):
        right = task.grade(sample_of(problem), output.text).correct
        verdict = "[green]right[/green]" if right else "[red]wrong[/red]"
        usage = output.usage
        title = f"{task.name} · {verdict} · started with 32, ended with {usage.n_token} positions"
        console.print(Panel(Text(problem.prompt), title=title, title_align="left", style="dim"))
        console.print(output.text, markup=False)
        console.print()

    console.rule("What it costs")
    table = Table()
    for column in ("", "right", "N_token", "E_token", "E_ratio", "NFE", "positions", "seconds"):
        table.add_column(column, justify="left" if not column else "right")
    for name, outputs in results.items():
        table.add_row(name, *_row(problems, outputs), style="bold" if name == "ρ-EOS" else None)
    console.print(table)
    console.print(LEGEND)


LEGEND = (
    "Means over the prompts. N_token: canvas at the end; E_token: used of it; E_ratio: their "
    "quotient; NFE: forwards; positions: Σ (prompt + canvas) over the forwards, the honest cost; "
    "seconds: for all prompts together. fixed 32 cuts long answers off; fixed 256 pays for MASKs "
    "nobody needs; ρ-EOS starts at 32 and fits the canvas to the answer while it writes it."
)


def _row(problems: list, outputs: list[Output]) -> list[str]:
    def mean(name: str) -> float:
        return sum(getattr(output.usage, name) for output in outputs) / len(outputs)

    right = sum(
        task.grade(sample_of(problem), output.text).correct
        for (task, problem), output in zip(problems, outputs, strict=True)
    )
    seconds = max(o.usage.seconds_waiting + o.usage.seconds_running for o in outputs)
    return [
        f"{right}/{len(outputs)}",
        f"{mean('n_token'):.0f}",
        f"{mean('e_token'):.0f}",
        f"{mean('e_token') / mean('n_token'):.0%}",
        f"{mean('nfe'):.1f}",
        f"{mean('positions_evaluated'):,.0f}",
        f"{seconds:.1f}",
    ]


if __name__ == "__main__":
    main()
