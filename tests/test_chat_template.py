"""Chat templates of checkpoints: what transformers renders, in bounded time and memory."""

import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from rho_eos.base.errors import UserError
from rho_eos.config import EngineConfig
from rho_eos.models.loading import open_checkpoint
from rho_eos.text import chat_template
from rho_eos.text.chat_template import render
from tests.checkpoints import CHAT_TEMPLATE, byte_tokenizer
from tests.conftest import DATA

MESSAGES = [
    {"role": "system", "content": "Be brief. ρ ≤ 0.8 👩‍🚀"},
    {"role": "user", "content": "  a\x1cb\n{{ 7 * 7 }} \ud800 "},
    {"role": "assistant", "content": "", "name": "x", "parts": [1, 2.5, None, True, {"a": []}]},
]
TEMPLATES = [
    CHAT_TEMPLATE,
    "{% for m in messages %}{{ m | tojson }}{% if loop.last %}{% break %}{% endif %}{% endfor %}",
    "{%- set ns = namespace(n=0) -%}{%- for m in messages %}{% set ns.n = ns.n + 1 %}{{ ns.n }}\n"
    "    {% endfor %}{{ eos_token }}{{ mask_token }}{{ add_generation_prompt }}",
    "{% generation %}{{ messages[0]['content'] }}{% endgeneration %}{{ tools }}{{ documents }}",
    "{% for m in messages %}{{ '%-20s|' % m.role }}{{ m.get('parts', 'no')[1:] }}{% endfor %}",
]


@pytest.mark.parametrize("template", TEMPLATES)
def test_it_is_what_transformers_renders(template: str) -> None:
    tokenizer = byte_tokenizer(template)
    for prompt in (True, False):
        want = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=prompt)
        assert render(tokenizer, MESSAGES, prompt) == want


def test_the_last_message_can_be_the_start_of_the_answer() -> None:
    tokenizer = byte_tokenizer()
    messages = [*MESSAGES[:2], {"role": "assistant", "content": "So"}]
    want = tokenizer.apply_chat_template(messages, tokenize=False, continue_final_message=True)
    assert render(tokenizer, messages, False, True) == want
    assert want.endswith("So")


BOMBS = {
    "divides by zero": ("{{ 1 / 0 }}", "fails: ZeroDivisionError"),
    "refuses": ("{{ raise_exception('only users') }}", "refuses these messages: only users"),
    "syntax": ("{% for %}", "refuses these messages"),
    "unknown name": ("{{ nothing.at.all }}", "refuses these messages"),
    "escapes": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "refuses these messages"),
    "recursion": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "fails: RecursionError"),
    "large range": ("{% for i in range(10**9) %}x{% endfor %}", "fails: OverflowError"),
    "3 GB": ("{{ 'x' * 3000000000 }}", "limit of 256 MB"),
    "a list": ("{{ [0] * 1000000000 }}", "limit of 256 MB"),
    "a width": ("{{ '%3000000000d' % 1 }}", "limit of 256 MB"),
    "doubling": (
        "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}"
        "{% endfor %}{{ ns.x }}",
        "limit of 256 MB",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_one_sentence(name: str) -> None:
    template, says = BOMBS[name]
    before = psutil.Process().memory_info().rss
    with pytest.raises(UserError) as refused:
        render(byte_tokenizer(template), MESSAGES[:1])
    assert says in str(refused.value) and "\n" not in str(refused.value)
    assert psutil.Process().memory_info().rss - before < 300 * 2**20
    assert render(byte_tokenizer("fine"), MESSAGES[:1]) == "fine"


ENDLESS = [
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{{ (10 ** (10 ** 9)) and 1 }}",  # one operation: no step limit would see it
]


@pytest.mark.parametrize("template", ENDLESS)
def test_one_that_never_ends_is_ended(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", 1)
    monkeypatch.setattr(chat_template, "_worker", chat_template._Worker())
    started = time.monotonic()
    with pytest.raises(UserError, match="did not come to an end within 1 seconds"):
        render(byte_tokenizer(template), MESSAGES[:1])
    assert time.monotonic() - started < 60
    assert render(byte_tokenizer("fine"), MESSAGES[:1]) == "fine"
    chat_template._worker._end()


@pytest.mark.parametrize("template", [5, {"a": "b"}, [{"name": "tool_use", "template": "x"}]])
def test_what_is_no_template_is_refused(template: Any) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(UserError, match="chat template"):
        render(tokenizer, MESSAGES[:1])


def test_threads_share_it() -> None:
    def ask(number: int) -> str:
        tokenizer = byte_tokenizer(f"{number} {{{{ messages[0].content }}}}")
        return render(tokenizer, MESSAGES[:1])

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(ask, range(80)))
    assert found == [f"{number} {MESSAGES[0]['content']}" for number in range(80)]


def test_a_worker_that_somebody_killed_is_begun_anew() -> None:
    render(byte_tokenizer("fine"), MESSAGES[:1])
    process = chat_template._worker._process
    assert process is not None
    process.kill()
    process.wait()
    assert render(byte_tokenizer("fine"), MESSAGES[:1]) == "fine"


def test_no_process_stays_behind() -> None:
    """However its owner ended, the worker's input ends with it."""
    command = [sys.executable, "-P", str(chat_template._WORKER), "5", "256", "1000"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        worker.stdin.close()
        assert worker.wait(60) == 0


@pytest.mark.parametrize(("family", "says"), [("a2d-qwen3", "False"), ("dream", "nothing")])
def test_it_is_given_what_the_family_sets(family: str, says: str, tmp_path: Path) -> None:
    """Qwen3's template begins to think aloud unless it is told not to, which A2D was not taught."""
    shutil.copytree(DATA / "parity" / family, tmp_path / "checkpoint")
    template = "{{ enable_thinking | default('nothing') }}"
    byte_tokenizer(template).save_pretrained(tmp_path / "checkpoint")
    ids = {"mask_token_id": 3, "eos_token_id": 2}
    checkpoint = open_checkpoint(EngineConfig(model=str(tmp_path / "checkpoint"), **ids))
    assert render(checkpoint.tokenizer, MESSAGES) == says
