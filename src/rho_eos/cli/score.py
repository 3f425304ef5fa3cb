"""`rho-eos score`: how likely answers are."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from rho_eos.base.errors import UserError
from rho_eos.cli.options import Raw
from rho_eos.config import EngineConfig
from rho_eos.engine.params import ScoreParams

if TYPE_CHECKING:
    from rho_eos.engine.likelihood import Score


def score(
    engine: EngineConfig,
    how: ScoreParams,
    prompt: str | None = typer.Argument(None, help="What is asked; alone, the text to score."),
    answers: list[str] | None = typer.Argument(None, help="The answers to score behind it."),
    raw: Raw = False,
    json_output: bool = typer.Option(False, "--json", help="Print a JSON object for each answer."),
    input_file: Path | None = typer.Option(
        None,
        "--input",
        "-i",
        help="Many pairs: JSON Lines, CSV or Parquet with an answer, and prompt, messages or "
        "prompt_token_ids. Prints a JSON object for each.",
    ),
) -> int:
    """Score answers: the logarithm of how likely the model finds them, in nats.

    [bold]Examples[/bold]

      rho-eos score "Is the sky blue? Answer yes or no." yes no --model GSAI-ML/LLaDA-8B-Instruct

      rho-eos score "A text for itself" --raw --method pseudo

      rho-eos score --input pairs.jsonl --method chain > scores.jsonl
    """
    from rho_eos.cli.running import prepared_scores

    items = _items(prompt, answers or [], input_file)
    scores = prepared_scores(engine, items, how, raw)
    as_json = json_output or input_file is not None
    for item, each in zip(items, scores, strict=True):
        print(json.dumps(each.as_dict()) if as_json else _told(item, each), flush=True)
    return 0


def _items(prompt: str | None, answers: list[str], input_file: Path | None) -> list[Any]:
    if input_file is None:
        if prompt is None:
            raise UserError("give a prompt and answers, a text, or --input")
        return [(prompt, answer) for answer in answers] or [prompt]
    if prompt is not None:
        raise UserError("--input goes without a prompt on the command line")
    from rho_eos.files.rows import read_rows

    items = []
    for row in read_rows(input_file):
        if isinstance(row.content, UserError):
            raise UserError(f"{row.where}: {row.content}")
        if not isinstance(row.content, dict):
            raise UserError(f"{row.where}: takes an object with an answer")
        known = ("prompt", "messages", "prompt_token_ids", "answer")
        items.append({name: row.content[name] for name in known if name in row.content})
    return items


def _told(item: Any, score: "Score") -> str:
    answer = item if isinstance(item, str) else item[1]
    error = score.standard_error
    around = "" if not error else f" ± {error:.3f}"
    return (
        f"{score.logprob:9.3f}{around}  {score.per_token:8.3f} a token  "
        f"{len(score.token_ids)} tokens, {score.forwards} forwards ({score.method})  {answer}"
    )
