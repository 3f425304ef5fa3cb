"""`rho-eos generate`: one prompt from the command line or stdin, or many from a file."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from rho_eos.base.errors import UserError
from rho_eos.cli.asking import Raw, Suffix, prepared, read_json, read_text
from rho_eos.cli.file_options import InOrder, Overwrite
from rho_eos.cli.ray_options import RayActors, RayAddress


def generate(
    engine_options: dict[str, Any],
    decode_options: dict[str, Any],
    prompt: Annotated[
        str | None, typer.Argument(help="The prompt; read from stdin if it is not given.")
    ] = None,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with text, tokens and metrics.")
    ] = False,
    raw: Raw = False,
    suffix: Suffix = None,
    template: Annotated[
        str | None,
        typer.Option(
            help="Fill the gaps of this text: ___, or ___{12} for 12 MASKs. With a prompt, as the "
            "answer to it."
        ),
    ] = None,
    template_file: Annotated[
        Path | None,
        typer.Option(help="The same, with the text in a file; the filled file is printed."),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(help="Answer in JSON that is valid for the flat JSON schema in this file."),
    ] = None,
    n: Annotated[
        int, typer.Option("--n", "-n", help="Samples of each prompt; the i-th has seed + i.")
    ] = 1,
    commits: Annotated[
        bool,
        typer.Option(
            "--commits", help="In JSON, also the step and the probability of each token's commit."
        ),
    ] = False,
    input_file: Annotated[
        Path | None,
        typer.Option(
            "--input",
            "-i",
            help="Many prompts: JSON Lines, CSV or Parquet with prompt, messages or "
            "prompt_token_ids, optionally id, n, suffix, suffix_token_ids, template, schema and "
            "any decoding parameter; or a .txt file with a prompt on each line.",
        ),
    ] = None,
    output_file: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Where results go, line by line. Run again to continue."
        ),
    ] = None,
    overwrite: Overwrite = False,
    in_order: InOrder = False,
    trace_file: Annotated[
        Path | None, typer.Option(help="Write every denoising step to this file, as JSON lines.")
    ] = None,
    ray: RayAddress = None,
    ray_actors: RayActors = None,
) -> int:
    """Generate text for one prompt, or for every line of a file.

    [bold]Examples[/bold]

      rho-eos generate "Mia has 8 plums. 1) buys 6. 2) eats 5. How many are there now?"

      echo "Tom has 9 coins. 1) loses 4. How many are left?" | rho-eos generate --json

      rho-eos generate "def area(r):" --suffix "    return a" --model GSAI-ML/LLaDA-8B-Instruct

      rho-eos generate --template '{"name": "___", "age": ___{2}}' --model GSAI-ML/LLaDA-8B-Instruct

      rho-eos generate --template-file area.py --model GSAI-ML/LLaDA-8B-Instruct > filled.py

      rho-eos generate --input prompts.jsonl --output out.jsonl --preset sym

      rho-eos generate --input prompts.jsonl --output out.jsonl -n 8 --temperature 1 --commits

      rho-eos generate --input prompts.jsonl --output out.jsonl --ray --ray-actors 4
    """
    if template_file is not None:
        if template is not None:
            raise UserError("give either --template or --template-file, not both")
        template = read_text(template_file)
    if (input_file is None) != (output_file is None):
        raise UserError("--input and --output go together")
    if input_file is not None and output_file is not None:
        from rho_eos.cli.generate_file import Files, generate_file

        if any(each is not None for each in (prompt, suffix, template, schema)):
            raise UserError("a prompt, --suffix, --template or --schema does not go with --input")
        files = Files(input_file, output_file, trace_file, raw, overwrite, in_order, n, commits)
        return generate_file(engine_options, decode_options, files, ray, ray_actors)
    for given, option in ((ray, "--ray"), (overwrite, "--overwrite"), (in_order, "--in-order")):
        if given:
            raise UserError(f"{option} goes with --input")
    if commits and not json_output:
        raise UserError("--commits goes with --json or --input")
    if prompt is None and template is None:
        prompt = _from_stdin()
    from rho_eos.files.traces import open_trace, trace_lines
    from rho_eos.text.ask import Ask

    ask = Ask(
        prompt,
        {**decode_options, **({} if trace_file is None else {"trace": True})},
        n=n,
        raw=raw,
        suffix=suffix,
        template=template,
        schema=None if schema is None else read_json(schema),
    )
    requests, loaded = prepared(engine_options, ask)
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


def _from_stdin() -> str:
    if sys.stdin.isatty():
        raise UserError("give a prompt as an argument, on stdin, or in a file with --input")
    return sys.stdin.read()
