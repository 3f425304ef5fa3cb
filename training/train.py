"""Train an embedded model, or one like it: `python -m training.train --out DIR --minutes M`.

A masked diffusion language model learns to say what stands under the MASKs. What it is shown is the
whole recipe (`rows.py`): short problems in one wording and mostly next-token rows first, so that
looking up and calculating form; harder and more varied problems as it masters these; blocks that
widen; and canvas rows only in the end, which are what decoding shows it. There an error that
decoding would have committed counts ten times, because nothing takes a commit back. Matrices are
trained with Muon, the rest with AdamW; what is saved is a moving average of the weights.

`--out` receives the checkpoint (config, weights, tokenizer), `state.pt` to resume from, and
`curve.png`. On a CPU, one process per core is faster than threads:
`OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 -m training.train …` averages their gradients.
The same seed gives the same problems and masks if the schedule follows `--steps`; by default it
follows the clock, so that it is complete when the minutes are over.

`--model` trains another of the embedded models, from the weights of `tiny`: `terse` (`brevity.py`),
`tiny-blocks` (`blocks.py`) or `unsure` (`unsure.py`).

A run that was stopped goes on with `--resume`. Minutes count over all stretches; asking for more of
them than before stretches the schedule, so that a finished run can be lengthened as well.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import torch.distributed as dist
import typer
from torch.nn.functional import cross_entropy

from rho_eos.base.errors import UserError
from rho_eos.models.known import EMBEDDED
from rho_eos.models.layers.llada import LLaDAForMaskedLM
from rho_problems import TASKS
from rho_problems.tokenizer import build_tokenizer
from training.batches import Batch
from training.blocks import Blocks
from training.brevity import Brevity
from training.curriculum import Curriculum, ProblemStream, Recipe
from training.model import FULL, QUICK, Size, new_model
from training.muon import Muon
from training.progress import (
    Record,
    Sums,
    Window,
    as_line,
    count_right,
    draw_curve,
    next_token_shares,
)
from training.rows import BLOCK, NO_TARGET, Kind, RowMaker
from training.unsure import Unsure

MATRIX_RATE, OTHER_RATE = 0.01, 0.004
AVERAGING = 0.995
LOG_STEPS = 100
VALIDATION_SEED = 10**6  # other test problems than `held_out` gives
TINY = Recipe()
RECIPES = {"tiny": TINY, "terse": Brevity(), "tiny-blocks": Blocks(), "unsure": Unsure()}


class Trainer:
    """Model, optimizers, average and data of one run, which can be saved and taken up again."""

    def __init__(self, out: Path, size: Size, seed: int, recipe: Recipe = TINY) -> None:
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.peers = dist.get_world_size() if dist.is_initialized() else 1
        torch.manual_seed(seed)
        self.out, self.size, self.recipe = out, size, recipe
        self.tokenizer = build_tokenizer()
        own_seed = seed * self.peers + self.rank
        maker = RowMaker(self.tokenizer, np.random.default_rng(own_seed))
        self.stream = ProblemStream(recipe, maker, size, own_seed)
        self.model = new_model(size, self.tokenizer)
        for name, value in recipe.config.items():
            setattr(self.model.config, name, value)
        if recipe.start is not None:
            _begin_with(self.model, recipe.start)
        named = dict(self.model.named_parameters())
        matrices = {name: p for name, p in named.items() if "layers" in name and p.ndim == 2}
        self.muon = Muon(matrices.values())
        others = [p for name, p in named.items() if name not in matrices]
        self.adam = torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0)
        self.average = {name: p.detach().clone() for name, p in named.items()}
        self.step = self.tokens = 0
        self.minutes = 0.0
        self.history: list[Record] = []
        self.queue: Iterator[Batch] = iter(())

    def train_step(self, moment: float) -> Sums:
        """One update; its loss, and the share of what matters that was said right, by kind."""
        phase = self.recipe.phase(moment, self.step)
        batch = next(self.queue, None)
        if batch is None:
            self.queue = iter(self.stream.batches(phase))
            batch = next(self.queue)
        for _ in range(self.stream.maker.rng.integers(phase.rehearsals + 1)):
            batch = self.rehearsed(batch)
        asked = batch.targets >= 0
        hidden = self.model.model(
            batch.ids, attention_mask=batch.attention_mask(), position_ids=batch.positions
        ).last_hidden_state
        logits = self.model.lm_head(hidden[asked])  # the vocabulary only where something is asked
        targets, weights = batch.targets[asked], batch.weights[asked]
        right = logits.argmax(-1) == targets
        count = torch.where(right | ~_sure(logits), 1.0, phase.oversure)
        each = cross_entropy(logits, targets, reduction="none")
        loss = (each * weights * count).sum() / weights.sum()
        loss.backward()
        self._average_gradients()
        self._update(phase.rate)
        self.step += 1
        self.tokens += batch.ids.numel() * self.peers
        is_number = torch.from_numpy(self.stream.maker.is_number)
        return {"loss": (loss.item(), 1)} | count_right(batch, right, is_number)

    @torch.no_grad()
    def rehearsed(self, batch: Batch) -> Batch:
        """What decoding would show one step later: what it is sure of is filled in, in every block.

        What is left is what it finds hard, and no rule about masks would have chosen just that.
        """
        place = torch.arange(batch.ids.shape[1])
        hidden = (batch.ids == self.stream.maker.mask) & (batch.kind == Kind.CANVAS)[:, None]
        first = hidden.int().argmax(1, keepdim=True)
        near = hidden & (batch.stream.bool() | (place < first + BLOCK))
        states = self.model.model(
            batch.ids, attention_mask=batch.attention_mask(), position_ids=batch.positions
        ).last_hidden_state
        sure = torch.zeros_like(near)
        sure[near] = _sure(self.model.lm_head(states[near]))
        # Nothing left to ask in a block: leave it as it is. A canvas is all one block here.
        block = batch.block * (batch.block < len(place))
        left = torch.zeros_like(block).scatter_add_(1, block, (near & ~sure).long())
        sure &= left.gather(1, block) > 0
        return replace(
            batch,
            ids=torch.where(sure, batch.targets, batch.ids),
            targets=torch.where(sure, NO_TARGET, batch.targets),
        )

    def _average_gradients(self) -> None:
        if self.peers > 1:
            parameters = list(self.model.parameters())
            flat = torch.cat([p.grad.flatten() for p in parameters if p.grad is not None])
            dist.all_reduce(flat)
            pieces = (flat / self.peers).split([p.numel() for p in parameters])
            for parameter, piece in zip(parameters, pieces, strict=True):
                parameter.grad = piece.view_as(parameter)

    def _update(self, rate: float) -> None:
        self.muon.step(rate * MATRIX_RATE)
        for group in self.adam.param_groups:
            group["lr"] = rate * OTHER_RATE
        self.adam.step()
        self.model.zero_grad(set_to_none=True)
        keep = min(AVERAGING, (self.step + 1) / (self.step + 20))
        for name, parameter in self.model.named_parameters():
            self.average[name].lerp_(parameter.detach(), 1 - keep)

    def solved(self) -> dict[str, float]:
        """Share of validation problems per task that the averaged model answers as trained.

        Word for word: that is stricter than the benchmarks, where a program is run, and needs
        neither a grader nor a sandbox while training.
        """
        self.export()
        shares = {}
        for name, task in TASKS.items():
            problems = [
                task.problem(VALIDATION_SEED + number, self.size.validation_steps)
                for number in range(self.size.validation)
            ]
            prompts = [problem.prompt for problem in problems]
            answers = self.recipe.answers(self.out, prompts, self.size.validation_length)
            right = [
                answer.rstrip() in self.recipe.right(problem)
                for problem, answer in zip(problems, answers, strict=True)
            ]
            shares[name] = sum(right) / len(right)
        return shares

    def remember(self, what: Record) -> None:
        self.history.append({"step": self.step, "minutes": self.minutes, **what})

    def when(self) -> str:
        return f"{self.minutes:.1f} min  step {self.step}"

    def export(self) -> None:
        """Write the averaged model as a checkpoint that the engine, or LLaDA's code, loads."""
        trained = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        self.model.load_state_dict(self.average, strict=False)
        self.model.save_pretrained(self.out)
        self.model.load_state_dict(trained, strict=False)
        self.tokenizer.save_pretrained(self.out)

    def save(self) -> None:
        """Everything a later run needs to go on; written aside first, so a kill cannot spoil it."""
        state = {
            "model": self.model.state_dict(),
            "average": self.average,
            "muon": self.muon.state_dict(),
            "adam": self.adam.state_dict(),
            "random": self.stream.maker.rng.bit_generator.state,
            "drawn": self.stream.drawn,
            "curriculum": asdict(self.stream.curriculum),
            "progress": (self.step, self.tokens, self.minutes),
            "history": self.history,
        }
        torch.save(state, self.out / "state.tmp")
        (self.out / "state.tmp").replace(self.out / "state.pt")

    def load(self) -> None:
        path = self.out / "state.pt"
        if not path.exists():
            raise UserError(f"nothing to resume: there is no {path}")
        state = torch.load(path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.average = state["average"]
        self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])
        self.stream.maker.rng.bit_generator.state = state["random"]
        self.stream.drawn = state["drawn"]
        self.stream.curriculum = Curriculum(**state["curriculum"])
        self.step, self.tokens, self.minutes = state["progress"]
        self.history = state["history"]


def _begin_with(model: torch.nn.Module, embedded: str) -> None:
    trained = LLaDAForMaskedLM.from_pretrained(
        EMBEDDED[embedded], dtype=torch.float32, trust_remote_code=False
    )
    try:
        model.load_state_dict(trained.state_dict())
    except RuntimeError as error:
        raise UserError(f"this model begins with the weights of {embedded} and its size") from error


THRESHOLD = 0.9  # τ, as decoding has it


@torch.no_grad()
def _sure(logits: torch.Tensor) -> torch.Tensor:
    """Where decoding would commit what is predicted."""
    return logits.softmax(-1).amax(-1) > THRESHOLD


def train(
    out: Path,
    minutes: float,
    size: Size = FULL,
    *,
    recipe: Recipe = TINY,
    seed: int = 1,
    steps: int | None = None,
    resume: bool = False,
    save_minutes: float = 3.0,
    validate_minutes: float = 15.0,
) -> Trainer:
    """Train until the minutes or, if given, the steps are used up; both count over resumes."""
    out.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(out, size, seed, recipe)
    if resume:
        trainer.load()
    saved = validated = trainer.minutes
    window = Window(trainer.tokens)
    while trainer.minutes < minutes and (steps is None or trainer.step < steps):
        began = time.monotonic()
        moment = trainer.step / steps if steps else trainer.minutes / minutes
        window.add(trainer.train_step(moment))
        trainer.minutes = _same_for_all(trainer.minutes + (time.monotonic() - began) / 60)
        if trainer.step % LOG_STEPS == 0:
            means = window.means()
            trainer.stream.curriculum.observe(next_token_shares(means))
            trainer.remember(means)
            if trainer.rank == 0:
                speed = f"{window.tokens_per_second(trainer.tokens):.0f} tokens/s"
                print(f"{trainer.when()}  {speed}  {as_line(means)}", flush=True)
            window = Window(trainer.tokens)
        if trainer.rank == 0 and trainer.minutes - validated >= validate_minutes:
            validate(trainer)
            validated = trainer.minutes
        if trainer.rank == 0 and trainer.minutes - saved >= save_minutes:
            trainer.save()
            saved = trainer.minutes
    if trainer.rank == 0:
        validate(trainer)
        trainer.save()
    return trainer


def _same_for_all(minutes: float) -> float:
    """The first process's clock, so that all follow one schedule."""
    if not dist.is_initialized():
        return minutes
    clock = torch.tensor(minutes, dtype=torch.float64)
    dist.broadcast(clock, src=0)
    return clock.item()


def validate(trainer: Trainer) -> None:
    """Print and remember the share of problems solved by decoding."""
    solved = trainer.solved()
    trainer.remember({"solved": solved})
    shares = "  ".join(f"{name} {share:.0%}" for name, share in solved.items())
    print(f"{trainer.when()}  solved  {shares}", flush=True)


def main(
    out: Annotated[Path, typer.Option(help="folder for checkpoint, state and curve")],
    minutes: Annotated[float, typer.Option(help="training time, over all resumes")] = 90.0,
    model: Annotated[str, typer.Option(help=f"which one: {', '.join(RECIPES)}")] = "tiny",
    quick: Annotated[bool, typer.Option(help="a far smaller model on short problems")] = False,
    resume: Annotated[bool, typer.Option(help="go on from state.pt in the folder")] = False,
    steps: Annotated[int | None, typer.Option(help="schedule by steps, not the clock")] = None,
    save_minutes: Annotated[float, typer.Option(help="between saves of the state")] = 3.0,
    seed: Annotated[int, typer.Option(help="of problems, masks and initial weights")] = 1,
) -> None:
    """Train a small masked diffusion language model on the four tiny tasks."""
    if model not in RECIPES:
        raise typer.BadParameter(f"model is {model!r}, but takes one of {', '.join(RECIPES)}")
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    trainer = train(
        out,
        minutes,
        QUICK if quick else FULL,
        recipe=RECIPES[model],
        seed=seed,
        steps=steps,
        resume=resume,
        save_minutes=save_minutes,
    )
    if trainer.rank == 0:
        draw_curve(trainer.history, out / "curve.png")
        print(f"checkpoint and curve.png are in {out}")


if __name__ == "__main__":
    typer.run(main)
