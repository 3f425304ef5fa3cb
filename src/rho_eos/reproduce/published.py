"""What the ρ-EOS paper reports (arXiv 2601.22527), to print beside ours.

Its protocol: the whole benchmark, L_init 64, batch 8, three repeats averaged, temperature 0. Of
fixed lengths only the best of each task is given here; it was run one token a step. Seconds are of
the authors' machine.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from rho_eos.evals.studies.contenders import DAEDAL, RHO_ASYM, RHO_SYM
from rho_eos.reproduce.plan import REGIONS, one_token_label, region_label

SOURCE = "arXiv 2601.22527"
INSTRUCT, LLADA_15 = "LLaDA-8B-Instruct", "LLaDA-1.5"
MODELS = (INSTRUCT, LLADA_15)


@dataclass(frozen=True, slots=True)
class Published:
    """Percentages as printed. None: not reported."""

    accuracy: float
    e_token: float | None = None
    n_token: float | None = None
    e_ratio: float | None = None
    seconds: float | None = None
    step: float | None = None


#: Task: fixed best, DAEDAL, Sym, Asym.
_MAIN_INSTRUCT = {
    "gsm8k": (
        (83.9, 282.9, 1024, 27.6, 8238),
        (84.6, 246.0, 331.0, 74.5, 1090),
        (81.8, 198.4, 231.8, 85.6, 645),
        (84.2, 252.5, 361.0, 70.0, 823),
    ),
    "math500": (
        (40.4, 585.8, 1024, 57.2, 3663),
        (40.0, 464.6, 618.3, 75.2, 2207),
        (37.0, 428.8, 486.3, 88.2, 1398),
        (40.6, 558.7, 682.2, 81.9, 1968),
    ),
    "mbpp": (
        (38.8, 336.0, 2048, 16.3, 15172),
        (39.4, 308.4, 558.3, 55.2, 3551),
        (39.6, 324.0, 507.4, 63.9, 2031),
        (40.6, 335.9, 594.4, 55.5, 2030),
    ),
    "humaneval": (
        (48.2, 691.1, 2048, 33.8, 16046),
        (44.5, 494.7, 813.0, 64.8, 1283),
        (43.3, 570.4, 654.0, 88.4, 580),
        (43.9, 643.1, 769.9, 83.5, 593),
    ),
}
#: Task: DAEDAL, Sym, Asym; Acc, E_ratio, seconds.
_MAIN_15 = {
    "gsm8k": ((85.1, 72.9, 1056), (83.3, 84.4, 721), (84.5, 63.9, 990)),
    "math500": ((42.6, 73.8, 2460), (38.2, 91.0, 850), (41.0, 82.0, 637)),
    "mbpp": ((38.2, 54.8, 4124), (40.8, 62.8, 3001), (40.8, 61.8, 2565)),
    "humaneval": ((43.9, 64.4, 743), (44.5, 90.4, 433), (44.5, 84.8, 647)),
}
#: Of REGIONS, GSM8K: Acc, E_ratio, seconds.
_THRESHOLDS = ((81.8, 85.6, 645), (81.7, 83.8, 722), (81.7, 81.6, 845), (84.2, 70.0, 823))
#: GSM8K: Acc, E_ratio, seconds, Step.
_EXPANSION = {
    "constant": (79.8, 86.0, 589, 61.0),
    "linear": (80.9, 82.9, 757, 54.8),
    "exponential": (81.7, 81.6, 845, 52.4),
}
#: Acc on GSM8K and MBPP. (Two-stage confidence on MBPP is not the main table's DAEDAL, 39.4.)
_SIGNALS = {
    "single stage, confidence": (73.7, 40.0),
    "single stage, density": (84.2, 40.6),
    "two stages, confidence": (84.6, 38.2),
    "two stages, density": (84.4, 40.4),
}

Key = tuple[str, str, str, str]  # model, table, task, label of the row


def _entries() -> Iterator[tuple[Key, Published]]:
    for task, (best, *adaptive) in _MAIN_INSTRUCT.items():
        yield (INSTRUCT, "main", task, one_token_label(int(best[2]))), Published(*best)
        yield from _adaptive(INSTRUCT, task, [Published(*numbers) for numbers in adaptive])
    for task, rows in _MAIN_15.items():
        yield from _adaptive(LLADA_15, task, [_short(*numbers) for numbers in rows])
    for region, short in zip(REGIONS, _THRESHOLDS, strict=True):
        yield (INSTRUCT, "thresholds", "gsm8k", region_label(region)), _short(*short)
    for name, shorter in _EXPANSION.items():
        yield (INSTRUCT, "expansion", "gsm8k", name), _short(*shorter)
    for label, accuracies in _SIGNALS.items():
        for task, accuracy in zip(("gsm8k", "mbpp"), accuracies, strict=True):
            yield (INSTRUCT, "signals", task, label), Published(accuracy)


def _adaptive(
    model: str, task: str, numbers: Sequence[Published]
) -> Iterator[tuple[Key, Published]]:
    """DAEDAL, Sym and Asym of the main table, which is L_init 64 of the other."""
    for label, published in zip((DAEDAL, RHO_SYM, RHO_ASYM), numbers, strict=True):
        yield (model, "main", task, label), published
        yield (model, "init-length", task, f"{label} from 64"), published


def _short(accuracy: float, e_ratio: float, seconds: float, step: float | None = None) -> Published:
    return Published(accuracy, e_ratio=e_ratio, seconds=seconds, step=step)


_PUBLISHED = dict(_entries())


def paper_model(model: str) -> str | None:
    """Which of the paper's models this is, by the name of its folder or on the Hub."""
    for part in PurePath(model).parts:
        name = part.rpartition("--")[2].lower()  # the Hub's cache: models--GSAI-ML--LLaDA-1.5
        for known in MODELS:
            if name == known.lower():
                return known
    return None


def find_published(model: str | None, table: str, task: str, label: str) -> Published | None:
    return None if model is None else _PUBLISHED.get((model, table, task, label))
