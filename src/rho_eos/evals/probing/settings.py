"""What a probe measures. Help texts are made of it, so it imports nothing heavy."""

from rho_eos.base.settings import Settings, Texts, setting


class Probe(Settings):
    """What is measured."""

    prompts: str | None = setting(None, "a file of prompts, as of `generate --input`")
    tasks: Texts = setting((), "benchmarks whose prompts are asked, and answers graded; repeatable")
    limit: int = setting(20, "prompts at most, of each task", ge=1, le=10_000)
    canvases: tuple[int, ...] = setting(
        (64, 128, 256, 512, 1024), "lengths of the empty canvases that are looked at"
    )
    write: int = setting(512, "the canvas on which texts are written", ge=8, le=2**20)
    temperature: float = setting(0.0, "of the texts that are written", ge=0, le=100)
