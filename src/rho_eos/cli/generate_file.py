"""`rho-eos generate --input`: every request of a file, answered into another file."""

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rho_eos.base.errors import UserError
from rho_eos.cli.file_options import check_distinct, run_job
from rho_eos.cli.ray_options import open_executor

if TYPE_CHECKING:
    from rho_eos.base.tokens import SpecialTokens


@dataclass(frozen=True, slots=True)
class Files:
    """Which files, and how they are treated."""

    input: Path
    output: Path
    trace: Path | None
    raw: bool
    overwrite: bool
    in_order: bool
    n: int
    commits: bool


def _check_defaults(options: dict[str, Any], special: "SpecialTokens") -> None:
    """What is given for all lines must be good for answers or, without a policy, for gaps."""
    from rho_eos.text.ask import Ask
    from rho_eos.text.preparation import decide

    try:
        decide(Ask(params=options), special)
    except UserError:
        with suppress(UserError):
            decide(Ask(params=options, template="___ ___"), special)
            return
        raise


def generate_file(
    engine_options: dict[str, Any],
    decode_options: dict[str, Any],
    files: Files,
    ray: str | None,
    ray_actors: int | None,
) -> int:
    """Exit code 2 if any line was bad; the good ones have run all the same."""
    from rho_eos.base.plugins import load_plugins
    from rho_eos.config import EngineConfig
    from rho_eos.decoding.params import check_samples
    from rho_eos.evals.runs.provenance import model_hash
    from rho_eos.files.generate_job import GenerateJob
    from rho_eos.models.loading import open_checkpoint

    check_distinct({"--input": files.input, "--output": files.output, "--trace-file": files.trace})
    if files.trace is not None:
        decode_options = {**decode_options, "trace": True}
    config = EngineConfig.from_mapping(engine_options)
    load_plugins(config.plugin)
    special = open_checkpoint(config).special
    _check_defaults(decode_options, special)  # a bad option is an error before any line is read
    check_samples(files.n)
    job = GenerateJob(
        defaults=decode_options,
        raw=files.raw,
        model_hash=model_hash(config),
        special=special,
        executor=partial(open_executor, ray, ray_actors, engine_options),
        model=config.model,
        n=files.n,
        commits=files.commits,
        trace=files.trace,
        overwrite=files.overwrite,
    )
    return run_job(
        job, files.input, files.output, files.overwrite, files.in_order, verb="generated"
    )
