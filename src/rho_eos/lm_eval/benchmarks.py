"""What our task files call: the benchmarks of `rho_eos.evals`, as lm-eval wants to see them.

A document names its benchmark, so that these four functions serve all of them, and prompts, data
checks and graders exist once.
"""

from pathlib import Path
from typing import Any

from datasets import Dataset

from rho_eos.evals import Sample, find_task

Document = dict[str, Any]


def dataset(benchmark: str, **metadata: Any) -> dict[str, Dataset]:
    """The samples, of the file given with `--metadata gsm8k_data=PATH`, else of the Hub."""
    path = metadata.get(f"{benchmark}_data")
    samples = find_task(benchmark).load(None if path is None else Path(path))
    rows = [{"benchmark": benchmark, "id": each.id, "data": dict(each.data)} for each in samples]
    return {"test": Dataset.from_list(rows)}


def prompt(document: Document) -> str:
    """The published protocol's user message; the task file's `gen_prefix` follows it."""
    message, *_ = find_task(document["benchmark"]).messages(_sample(document))
    return message["content"]


def reference(document: Document) -> str:
    return find_task(document["benchmark"]).gold(_sample(document))


def grade(document: Document, results: list[str]) -> dict[str, float]:
    """The verdict. Code runs in the sandbox of `rho-eos eval`, so nobody has to allow it."""
    return {
        "acc": float(find_task(document["benchmark"]).grade(_sample(document), results[0]).correct)
    }


def _sample(document: Document) -> Sample:
    return Sample(document["id"], document["data"])
