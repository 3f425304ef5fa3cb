"""`rho_eos` as a model of lm-evaluation-harness: generation by the engine, likelihood by masks.

generate_until           all requests of a run go to the engine at once; it does the batching
loglikelihood            Monte-Carlo bound and greedy check, as in LLaDA's evaluation
loglikelihood_rolling    the same over windows of the model's context
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

# lm-eval registers its own models only when this is imported before anybody else's is registered.
import lm_eval.models  # noqa: F401
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from rho_eos.base.errors import UserError
from rho_eos.engine.params import ScoreParams
from rho_eos.evals.runs.provenance import model_identity
from rho_eos.files.jobs import decode_all
from rho_eos.lm_eval.arguments import decode_params, engine_limits, read_model_args
from rho_eos.lm_eval.likelihood import greedy_answers
from rho_eos.text.ask import Ask, Request
from rho_eos.text.chat_template import render
from rho_eos.text.pairs import Pair, refuse_blocks
from rho_eos.views.announced import load


@register_model("rho_eos")
class RhoEosLM(TemplateLM):
    """`--model rho_eos --model_args pretrained=…,policy=…`: any engine or decoding parameter."""

    def __init__(
        self,
        *,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,  # noqa: ARG002  lm-eval passes it to every model
        device: str | None = None,
        **model_args: Any,
    ) -> None:
        super().__init__()
        args = read_model_args(model_args)
        self.defaults = args.decode
        self.params = args.params
        self.likelihood = args.likelihood
        self.llm = load(engine_limits(batch_size, device) | args.engine)
        if self.llm.tokenizer is None:
            raise UserError("lm-eval asks in texts, but this model has no tokenizer")
        self.tokenizer = self.llm.tokenizer
        self._device = self.llm.model.device

    # ── generation ───────────────────────────────────────────────────────────────────────────

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        texts: dict[int, str] = {}
        ready = self._requests(requests)  # all are checked before any of them runs
        outputs = decode_all(self.llm.engine, iter(ready))
        for output in tqdm(outputs, "generating", len(requests), disable=disable_tqdm):
            number = int(output.id)
            texts[number] = output.text
            self.cache_hook.add_partial("generate_until", requests[number].args, output.text)
        return [texts[number] for number in range(len(requests))]

    def _requests(self, requests: list[Instance]) -> list[Request]:
        """The requests of a task. One that is asked several times gets another seed each time."""
        asked: Counter[str] = Counter()
        ready = []
        for number, request in enumerate(requests):
            context, gen_kwargs = request.args
            key = json.dumps([context, gen_kwargs], sort_keys=True, default=str)
            params = decode_params(self.defaults, gen_kwargs, repeat=asked[key])
            asked[key] += 1
            ids = self.tok_encode(context) or [self.prefix_token_id]
            # Of a prompt that is too long lm-eval's other models, too, read the end.
            ask = Ask({"prompt_token_ids": ids}, params, id=str(number), keep_end=True)
            ready += self.llm.preparer.prepare(ask)
        return ready

    # ── likelihood ───────────────────────────────────────────────────────────────────────────

    def _loglikelihood_tokens(
        self,
        requests: list[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
        **kwargs: Any,  # noqa: ARG002  hints for other models
    ) -> list[tuple[float, bool]]:
        refuse_blocks(self.llm.checkpoint.blocks)
        pairs = [self._pair(context, answer) for _, context, answer in requests]
        greedy = self._greedy(pairs, disable_tqdm)
        results = []
        for (texts, _, _), estimate, is_greedy in zip(
            requests, self._estimates(pairs, disable_tqdm), greedy, strict=True
        ):
            results.append((estimate, is_greedy))
            self.cache_hook.add_partial("loglikelihood", texts, results[-1])
        return results

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        refuse_blocks(self.llm.checkpoint.blocks)
        windows = [
            [Pair(*make_disjoint_window(window)) for window in self._windows(request.args[0])]
            for request in requests
        ]
        estimates = self._estimates([pair for each in windows for pair in each], disable_tqdm)
        results = []
        for request, each in zip(requests, windows, strict=True):
            results.append(float(sum(next(estimates) for _ in each)))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, results[-1])
        return results

    def _windows(self, text: str) -> Iterator[tuple[list[int], list[int]]]:
        return get_rolling_token_windows(
            token_list=self.tok_encode(text, add_special_tokens=False),
            prefix_token=self.prefix_token_id,
            max_seq_len=self.max_length - 1,  # the context token stands beside the window here
            context_len=1,
        )

    def _pair(self, context: list[int], answer: list[int]) -> Pair:
        if len(answer) >= self.max_length:
            raise UserError(
                f"an answer of {len(answer)} tokens has no room in a context of {self.max_length}"
            )
        return Pair(context[len(answer) - self.max_length :], answer)

    def _estimates(self, pairs: list[Pair], disable_tqdm: bool) -> Iterator[float]:
        how = ScoreParams(
            draws=self.likelihood.mc_num,
            seed=self.params.seed,
            cfg_scale=float(self.params.cfg_scale),
        )
        scores = self.llm.score_pairs(pairs, how, self.llm.engine.between_steps)
        told = tqdm(scores, "likelihood", len(pairs), disable=disable_tqdm)
        return (score.logprob for score in told)

    def _greedy(self, pairs: list[Pair], disable_tqdm: bool) -> list[bool]:
        if not self.likelihood.check_greedy:
            return [False] * len(pairs)
        answers = greedy_answers(self.llm, pairs, self.params.cfg_scale)
        found = dict(tqdm(answers, "greedy check", len(pairs), disable=disable_tqdm))
        return [found.get(number, True) for number in range(len(pairs))]

    # ── texts ────────────────────────────────────────────────────────────────────────────────

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **_: Any
    ) -> list[int]:
        """The ids of a text. A rendered chat brings its own first token; a plain text gets one."""
        if add_special_tokens is None:
            bos = self.tokenizer.bos_token
            add_special_tokens = not (bos and string.startswith(bos))
        return list(self.tokenizer.encode(string, add_special_tokens=add_special_tokens))

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Context and continuation apart, as the model sees them that writes the continuation.

        lm-eval's own moves what is blank at the end of the context to the continuation; but the
        blank lines at the end of a chat template belong to the prompt.
        """
        return self.tok_encode(context), self.tok_encode(continuation, add_special_tokens=False)

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Render a chat. Without a generation prompt its last message begins the answer."""
        if self.tokenizer.chat_template is None:
            raise UserError("this model has no chat template; leave out --apply_chat_template")
        return render(
            self.tokenizer,
            chat_history,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )

    @property
    def tokenizer_name(self) -> str:
        return self.llm.config.model.replace("/", "__")

    @property
    def eot_token_id(self) -> int:
        return self.llm.special.eos

    @property
    def prefix_token_id(self) -> int:
        """What stands before a text that has no context."""
        bos = self.tokenizer.bos_token_id
        return int(bos) if bos is not None else self.eot_token_id

    @property
    def max_length(self) -> int:
        return self.llm.context_length

    def get_model_info(self) -> dict[str, Any]:
        """For lm-eval's results file: which weights, and what a request is decoded with."""
        return {
            "rho_eos_model": model_identity(self.llm.config),
            "rho_eos_params": self.defaults,
            "model_num_parameters": self.llm.checkpoint.parameters,
        }
