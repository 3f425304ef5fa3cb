"""A task of one's own: apples that come and go, made on the spot. How it works: docs/tasks.md.

rho-eos eval --plugin examples/task.py --tasks apples --limit 20 --out runs/apples
"""

import random
from pathlib import Path

from rho_eos.evals import Grade, Sample, Task, register_task
from rho_eos.evals.graders import NumberAfter


@register_task
class Apples(Task):
    name = "apples"

    def load(self, _path: Path | None = None, limit: int | None = None) -> list[Sample]:
        draw = random.Random(0)
        numbers = [[draw.randint(low, 9) for low in (2, 1, 1)] for _ in range(limit or 100)]
        return [Sample(f"apples/{k}", {"numbers": three}) for k, three in enumerate(numbers)]

    def prompt(self, sample: Sample) -> str:
        has, finds, more = sample.data["numbers"]
        return f"Mia has {has} apples. 1) finds {finds}. 2) buys {more}. How many are there now?"

    def gold(self, sample: Sample) -> str:
        return f"#### {sum(sample.data['numbers'])}"

    def grade(self, sample: Sample, text: str) -> Grade:
        return NumberAfter(marker="####").grade(text, self.gold(sample))
