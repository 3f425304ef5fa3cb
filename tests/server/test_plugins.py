"""A policy from a plugin file is in the server as ours are: described, checked, run, explained."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import forks
from tests.server.clients import events
from tests.server.conftest import MODEL, Process
from tests.server.plugin import PLUGIN


def post(server: Process, **fields: Any) -> httpx.Response:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 24}
    url = f"{server.url}/v1/chat/completions"
    return httpx.post(url, json=body | fields, timeout=120, trust_env=False)


def get(server: Process, path: str) -> Any:
    return httpx.get(f"{server.url}{path}", timeout=60, trust_env=False).json()


def test_it_is_described_like_ours(plugin_server: Process) -> None:
    bodies = get(plugin_server, "/openapi.json")["components"]["schemas"]
    for body in ("ChatRequest", "CompletionRequest"):
        fields = bodies[body]["properties"]
        assert "doubter" in fields["policy"]["anyOf"][0]["enum"]
        assert fields["endurance"]["anyOf"][0] == {"type": "integer", "minimum": 2, "maximum": 1000}
        assert fields["endurance"]["default"] == 3
        assert fields["mood"]["anyOf"][0]["enum"] == ["calm", "grim"]
    policies = get(plugin_server, "/v1/rho_eos/schema")["axes"]["policy"]
    assert next(iter(policies)) == "rho-eos"
    assert policies["doubter"]["summary"] == "Takes back what it wrote now and then."
    endurance = policies["doubter"]["parameters"]["endurance"]
    assert endurance.pop("takes").startswith("an integer")
    assert endurance == {
        "type": "integer",
        "default": 3,
        "optional": False,
        "choices": [],
        "bounds": {"ge": 2, "le": 1000},
        "help": "forwards until a token is taken back",
    }
    assert policies["doubter"]["parameters"]["rests"]["type"] == "integers"


def test_the_example_of_the_guide_is_served_too(plugin_server: Process) -> None:
    chosen = {"policy": "until-eos", "initial_length": 8, "chunk": 8}
    usage = post(plugin_server, **chosen).json()["usage"]["rho_eos"]
    assert (usage["expansions"], usage["n_token"]) == (2, 24)
    refused = post(plugin_server, **chosen, rho_low=0.3)
    assert refused.status_code == 400
    assert refused.json()["error"]["message"].startswith("policy until-eos has no parameter")


def test_it_runs_with_its_own_parameters(plugin_server: Process) -> None:
    calm = post(plugin_server, policy="doubter", early_stop=False).json()["usage"]["rho_eos"]
    hasty = post(plugin_server, policy="doubter", early_stop=False, endurance=2)
    assert calm["nfe"] == 22 * 3 + 2, "of three forwards two write and one takes back"
    assert hasty.status_code == 500, "of two forwards one writes and one takes back, for ever"
    assert hasty.json()["error"]["message"] == (
        "policy doubter failed: policy doubter does not come to an end"
    )


def test_its_parameters_are_its_own_and_checked(plugin_server: Process) -> None:
    for fields, message in (
        (
            {"endurance": 5},
            "policy rho-eos has no parameter 'endurance'; it is one of policy doubter",
        ),
        ({"policy": "doubter", "endurance": 1}, "endurance is 1, but takes an integer"),
    ):
        answer = post(plugin_server, **fields)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"].startswith(message)
        assert answer.json()["error"]["param"] == "endurance"


def test_a_parameter_of_several_numbers(plugin_server: Process, tmp_path: Path) -> None:
    fields = {"policy": "doubter", "stream": True, "stream_mode": "denoise"}
    for rests, want in (([3, 4], [3, 4]), (3, [3])):
        start, *_ = events(post(plugin_server, **fields, rests=rests).text)
        assert start["params"]["rests"] == want
    assert post(plugin_server, **fields, rests=["3"]).json()["error"]["param"] == "rests"
    plugin = tmp_path / "doubter.py"
    plugin.write_text(PLUGIN)
    words = ("generate", "x", "--plugin", plugin, "--policy", "doubter", "--rests", "1,2")
    refused = forks.run("-m", "rho_eos", *words, "--rests", "x")
    assert refused.returncode == 2 and "rests is ['1,2', 'x']" in refused.stderr
    good = forks.run("-m", "rho_eos", *words, "--rests", "3", "--max-new-tokens", "4")
    assert good.returncode == 0, good.stderr


def test_its_steps_can_be_followed_and_are_explained(plugin_server: Process) -> None:
    response = post(
        plugin_server, policy="doubter", mood="grim", stream=True, stream_mode="denoise"
    )
    start, *steps, done, end = events(response.text)
    assert end == "[DONE]"
    assert start["params"]["endurance"] == 3 and start["params"]["mood"] == "grim"
    assert start["region"] is None
    canvas: list[str | None] = [None] * start["length"]
    for step in steps:
        for position, text, _, is_end in step["committed"]:
            canvas[position] = "END" if is_end else text
        for position, text, _ in step["written"]:
            assert text is None and canvas[position] is not None
            canvas[position] = text
        back = step["action"] == "overwrite"
        assert step["moved"] == ([[0, len(canvas)]] if back else None)
        assert step["why"] == ("After 3 forwards, grim doubts." if back else "No doubts.")
    assert any(step["written"] for step in steps)
    assert done["usage"]["rho_eos"]["n_token"] == len(canvas) == 24


def test_a_text_that_may_be_taken_back_is_sent_only_once_it_is_final(
    plugin_server: Process,
) -> None:
    whole = post(plugin_server, policy="doubter").json()["choices"][0]["message"]["content"]
    *chunks, end = events(post(plugin_server, policy="doubter", stream=True).text)
    assert end == "[DONE]"
    texts = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert "".join(texts) == whole
    assert len([text for text in texts if text]) == 1


def test_a_policy_without_words_is_followed_all_the_same(plugin_server: Process) -> None:
    response = post(plugin_server, policy="faulty", stream=True, stream_mode="denoise")
    _, *steps, done, end = events(response.text)
    assert (end, done["object"]) == ("[DONE]", "rho_eos.done")
    assert {step["why"] for step in steps} == {""}
    assert {step["signal"] for step in steps} == {None}  # JSON has no NaN


@pytest.mark.parametrize("fault", ["step", "init"])
def test_a_policy_that_fails_fails_alone(plugin_server: Process, fault: str) -> None:
    answer = post(plugin_server, policy="faulty", fault=fault)
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "request_failed"
    assert "no idea" not in answer.text and "no beginning" not in answer.text
    assert post(plugin_server).status_code == 200


def test_a_parameter_named_like_a_request_field_is_refused_at_the_start(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    plugin = tmp_path / "clash.py"
    plugin.write_text(PLUGIN.replace("endurance", "n"))
    command = [sys.executable, "-m", "rho_eos", "serve", "--model", str(byte_checkpoint)]
    done = subprocess.run(
        [*command, "--port", "0", "--plugin", str(plugin)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert "policy doubter has a parameter 'n'" in last and "Traceback" not in done.stderr
