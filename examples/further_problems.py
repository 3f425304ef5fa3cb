"""The settings of lengths.yaml on held-out problems that were not used to choose them.

python examples/further_problems.py       # seeds 200 to 299 of each task
"""

from pathlib import Path

import yaml  # type: ignore[import-untyped]

from rho_eos import LLM, DecodeParams
from rho_eos.evals import find_task
from rho_eos.evals.tasks.embedded import sample_of
from rho_problems import TASKS

NAMES = ("tight-from-16", "tight-from-256", "fixed-512")
SEEDS = range(200, 300)

policies = yaml.safe_load(Path(__file__).with_name("lengths.yaml").read_text())["policies"]
llm = LLM("tiny")
for name in NAMES:
    for task in TASKS.values():
        problems = [task.problem(seed) for seed in SEEDS]
        params = DecodeParams.from_mapping(policies[name])
        outputs = llm.generate([problem.prompt for problem in problems], params)
        grade = find_task(task.name).grade
        right = sum(
            grade(sample_of(problem), output.text).correct
            for problem, output in zip(problems, outputs, strict=True)
        )
        used, canvas, positions = (
            sum(getattr(output.usage, field) for output in outputs) / len(outputs)
            for field in ("e_token", "n_token", "positions_evaluated")
        )
        share = f"{right} of {len(problems)} right, E_ratio {used / canvas:.0%}"
        print(f"{name:15} {task.name:15} {share}, {positions:,.0f} positions", flush=True)
