"""A policy from a plugin file is in the server as ours are: described, checked, run, explained."""

from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.server.clients import Web, deltas, error_of, text_of
from tests.server.conftest import Process
from tests.server.plugin import PLUGIN

DOUBTER: dict[str, Any] = {"policy": "doubter", "max_tokens": 24}


@pytest.fixture
def web(plugin_server: Process) -> Web:
    return plugin_server.web


def test_its_parameters_are_checked_like_ours(web: Web) -> None:
    for rests, want in (([3, 4], [3, 4]), (3, [3])):
        assert web.steps(**DOUBTER, rests=rests)[0]["params"]["rests"] == want
    assert error_of(web.chat(**DOUBTER, rests=["3"]))["param"] == "rests"
    for fields in ({"endurance": 5}, {"policy": "doubter", "endurance": 1}):
        assert error_of(web.chat(**fields))["param"] == "endurance"
    # Of two forwards one writes and one takes back, for ever.
    endless = error_of(web.chat(**DOUBTER, early_stop=False, endurance=2), 500)
    assert "doubter does not come to an end" in endless["message"]


def test_its_steps_are_explained_in_its_own_words(web: Web) -> None:
    start, steps, _ = web.steps(**DOUBTER, mood="grim")
    assert start["params"]["mood"] == "grim" and start["region"] is None
    for step in steps:
        back = step["action"] == "overwrite"
        assert bool(step["written"]) == back
        assert step["why"] == ("After 3 forwards, grim doubts." if back else "No doubts.")


def test_a_text_that_may_be_taken_back_is_sent_only_once_it_is_final(web: Web) -> None:
    assert deltas(web.chat(**DOUBTER, stream=True)) == [text_of(web.chat(**DOUBTER))]


def test_a_policy_without_words_is_followed_all_the_same(web: Web) -> None:
    _, steps, _ = web.steps(policy="faulty", max_tokens=24)
    assert {step["why"] for step in steps} == {""}
    assert {step["signal"] for step in steps} == {None}  # JSON has no NaN


@pytest.mark.parametrize("fault", ["step", "init"])
def test_a_policy_that_fails_fails_alone(web: Web, fault: str) -> None:
    answer = web.chat(policy="faulty", fault=fault)
    assert error_of(answer, 500)["code"] == "request_failed"
    assert "no idea" not in answer.text and "no beginning" not in answer.text
    assert web.chat(max_tokens=24).status_code == 200


def test_a_parameter_named_like_a_request_field_is_refused_at_the_start(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    plugin = tmp_path / "clash.py"
    plugin.write_text(PLUGIN.replace("endurance", "n"))
    words = ("serve", "--model", byte_checkpoint, "--port", "0", "--plugin", plugin)
    done = forks.run("-m", "rho_eos", *words)
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert "policy doubter has a parameter 'n'" in last and "Traceback" not in done.stderr
