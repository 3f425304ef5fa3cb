"""`rho-eos generate`: one prompt from the command line or stdin, or many from a file."""

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import typer

from rho_eos.base.errors import UserError
from rho_eos.base.small_files import read_small
from rho_eos.cli.options import InOrder, Overwrite, Raw, RayActors, RayAddress, Suffix
from rho_eos.cli.running import check_distinct, open_executor, prepared, run_job
from rho_eos.config import EngineConfig


def generate(
    engine: EngineConfig,
    decode_options: dict[str, Any],
    prompt: str | None = typer.Argument(None, help="The prompt; read from stdin if not given."),
    json_output: bool = typer.Option(
        False, "--json", help="Print one JSON object with text, tokens and metrics."
    ),
    raw: Raw = False,
    suffix: Suffix = None,
    template: str | None = typer.Option(
        None,
        help="Fill the gaps of this text: ___, or ___{12} for 12 MASKs. With a prompt, as the "
        "answer to it.",
    ),
    template_file: Path | None = typer.Option(
        None, help="The same, with the text in a file; the filled file is printed."
    ),
    json_schema: Path | None = typer.Option(
        None, help="Answer in JSON that is valid for the JSON schema in this file."
    ),
    regex: str | None = typer.Option(
        None, help="Answer with a text of this regular expression, as a whole."
    ),
    choice: list[str] = typer.Option([], help="Answer with one of these texts; give several."),
    n: int = typer.Option(1, "--n", "-n", help="Samples of each prompt; the i-th has seed + i."),
    commits: bool = typer.Option(
        False, "--commits", help="In JSON, also the step and probability of each token's commit."
    ),
    input_file: Path | None = typer.Option(
        None,
        "--input",
        "-i",
        help="Many prompts: JSON Lines, CSV or Parquet with prompt, messages or prompt_token_ids, "
        "optionally id, n, suffix, suffix_token_ids, template, constraint and any decoding "
        "parameter; or a .txt file with a prompt on each line.",
    ),
    output_file: Path | None = typer.Option(
        None, "--output", "-o", help="Where results go, line by line. Run again to continue."
    ),
    overwrite: Overwrite = False,
    in_order: InOrder = False,
    trace_file: Path | None = typer.Option(
        None, help="Write every denoising step to this file, as JSON lines."
    ),
    ray: RayAddress = None,
    ray_actors: RayActors = None,
) -> int:
    """Generate text for one prompt, or for every line of a file.

    [bold]Examples[/bold]

      rho-eos generate "Mia has 8 plums. 1) buys 6. 2) eats 5. How many are there now?"

      echo "Tom has 9 coins. 1) loses 4. How many are left?" | rho-eos generate --json

      rho-eos generate "def area(r):" --suffix "    return a" --model GSAI-ML/LLaDA-8B-Instruct

      rho-eos generate --template '{"name": "___", "age": ___{2}}' --model GSAI-ML/LLaDA-8B-Instruct

      rho-eos generate "Is 7 prime?" --choice yes --choice no --model GSAI-ML/LLaDA-8B-Instruct

      rho-eos generate --template-file area.py --model GSAI-ML/LLaDA-8B-Instruct > filled.py

      rho-eos generate --input prompts.jsonl --output out.jsonl --preset sym

      rho-eos generate --input prompts.jsonl --output out.jsonl -n 8 --temperature 1 --commits

      rho-eos generate --input prompts.jsonl --output out.jsonl --ray --ray-actors 4
    """
    if template_file is not None:
        if template is not None:
            raise UserError("give either --template or --template-file, not both")
        template = _read(template_file, "UTF-8", bytes.decode)
    constraint = _constraint(json_schema, regex, choice)
    if (input_file is None) != (output_file is None):
        raise UserError("--input and --output go together")
    if trace_file is not None:
        decode_options = {**decode_options, "trace": decode_options.get("trace") or True}
    if input_file is not None and output_file is not None:
        if any(each is not None for each in (prompt, suffix, template, constraint)):
            sentence = "a prompt, --suffix, --template or a form does not go with --input"
            raise UserError(f"{sentence}; each line has its own")
        check_distinct({"--input": input_file, "--output": output_file, "--trace-file": trace_file})
        from rho_eos.evals.runs.provenance import model_hash
        from rho_eos.files.generate_job import GenerateJob
        from rho_eos.models.loading import open_checkpoint
        from rho_eos.text.preparation import Preparer

        job = GenerateJob(
            defaults=decode_options,
            raw=raw,
            model=engine.model,
            preparer=Preparer(open_checkpoint(engine), engine),
            model_hash=model_hash(engine),
            executor=partial(open_executor, ray, ray_actors, engine),
            n=n,
            commits=commits,
            trace=trace_file,
            overwrite=overwrite,
        )
        return run_job(job, input_file, output_file, overwrite, in_order, verb="generated")
    for wrong, option in ((ray, "--ray"), (overwrite, "--overwrite"), (in_order, "--in-order")):
        if wrong:
            raise UserError(f"{option} goes with --input")
    if commits and not json_output:
        raise UserError("--commits goes with --json or --input")
    if prompt is None and template is None:
        if sys.stdin.isatty():
            raise UserError("give a prompt as an argument, on stdin, or in a file with --input")
        prompt = sys.stdin.read()
    from rho_eos.files.generate_job import open_trace, trace_lines
    from rho_eos.text.ask import Ask

    asked = {"suffix": suffix, "template": template, "constraint": constraint}
    requests, loaded = prepared(engine, Ask(prompt, decode_options, n=n, raw=raw, **asked))
    with nullcontext() if trace_file is None else open_trace(trace_file, overwrite=True) as traces:
        outputs = loaded().run(requests)
        if traces is not None:
            traces.append(*(line for output in outputs for line in trace_lines(output)))
    for request, output in zip(requests, outputs, strict=True):
        if json_output:
            print(json.dumps(output.as_dict(commits), ensure_ascii=False))
        else:
            text = output.text if n == 1 else f"--- seed {request.params.seed}\n{output.text}"
            # A file that was filled ends as it did.
            print(text, end="" if template_file is not None and text.endswith("\n") else "\n")
    return 0


def _constraint(json_schema: Path | None, regex: str | None, choice: list[str]) -> Any:
    """The form that the answer is to have, if any."""
    given: dict[str, Any] = {"regex": regex, "choices": choice or None}
    if json_schema is not None:
        given["schema"] = _read(json_schema, "JSON", json.loads)
    forms = {name: each for name, each in given.items() if each is not None}
    if len(forms) > 1:
        raise UserError("give one of --json-schema, --regex and --choice")
    return forms or None


def _read(path: Path, kind: str, parse: Callable[[bytes], Any]) -> Any:
    """A file's content. Of a text every byte counts: line ends stay as they are."""
    try:
        return parse(read_small(path))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"cannot read {path}: it is not {kind}") from error
