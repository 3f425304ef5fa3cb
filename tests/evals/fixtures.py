"""Benchmark files of our own: small, in the published formats, with none of the published items."""

from pathlib import Path

from rho_eos.evals import Sample, find_task
from rho_eos.evals.studies.study import PUBLISHED_TASKS as TASKS

__all__ = ["BROKEN", "FOLDER", "TASKS", "sample", "samples"]
FOLDER = Path(__file__).parents[1] / "data" / "evals"
BROKEN = {"mbpp/13"}  # its reference solution fails its own tests, as some published ones do


def samples(task: str) -> list[Sample]:
    return find_task(task).load(FOLDER / f"{task}.jsonl")


def sample(task: str, sample_id: str) -> Sample:
    return next(sample for sample in samples(task) if sample.id == sample_id)
