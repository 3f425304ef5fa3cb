"""What lm-eval asks beside a likelihood: whether greedy decoding gives just the answer."""

from collections.abc import Iterator, Sequence

from rho_eos.files.jobs import decode_all
from rho_eos.llm import LLM
from rho_eos.text.ask import Ask, Request
from rho_eos.text.pairs import Pair


def greedy_answers(
    llm: LLM, pairs: Sequence[Pair], cfg_scale: float = 0.0
) -> Iterator[tuple[int, bool]]:
    """By pair number: whether committing the surest token each step gives just the answer.

    As in LLaDA's evaluation: one token in each step, a canvas of the answer's length, no blocks.
    """

    def requests() -> Iterator[Request]:
        how = {"policy": "fixed", "commit": "quota", "block_length": None, "early_stop": False}
        for number, pair in enumerate(pairs):
            if length := len(pair.answer):
                lengths = {"initial_length": length, "max_new_tokens": length}
                params = {**how, **lengths, "cfg_scale": cfg_scale}
                yield from llm.preparer.prepare(Ask(pair.prompt, params, id=str(number)))

    for output in decode_all(llm.engine, requests()):
        number = int(output.id)
        yield number, output.canvas_token_ids == pairs[number].answer
