"""Real runs of lm-evaluation-harness with the embedded model, on task files made here."""

import json
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rho_eos import LLM, DecodeParams
from rho_eos.base.errors import UserError
from rho_eos.evals import find_task
from rho_eos.text.ask import Ask
from tests.checkpoints import write_checkpoint
from tests.evals.command import Command
from tests.evals.fixtures import BROKEN, FOLDER, TASKS
from tests.support import require_sandbox

OURS = ["--model", "rho_eos"]
ASKED = [*OURS, "--tasks", "tiny_gsm_rho", "--model_args"]
QUESTIONS = ["What is 3 + 4?", "What is 9 - 5?", "What is 2 * 6?"]
COMMON = """
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
"""
GENERATE = """
task: sums
output_type: generate_until
doc_to_target: answer
generation_kwargs: {until: ["\\n"], max_gen_toks: 24, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
CHOOSE = """
task: choices
output_type: multiple_choice
doc_to_target: gold
doc_to_choice: ["7", "4", "12"]
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
PERPLEXITY = """
task: texts
output_type: loglikelihood_rolling
doc_to_target: "{{question}}"
metric_list: [{metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}]
"""


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "tasks"
    folder.mkdir()
    data = folder / "sums.jsonl"
    answers = ["7", "4", "12"]
    rows = [
        {"question": question, "answer": answer, "gold": gold}
        for gold, (question, answer) in enumerate(zip(QUESTIONS, answers, strict=True))
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = COMMON.format(data=data)
    (folder / "sums.yaml").write_text(common + GENERATE)
    (folder / "choices.yaml").write_text(common + CHOOSE)
    (folder / "texts.yaml").write_text(common + PERPLEXITY)
    return folder


@pytest.fixture
def without_builtin_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """lm-eval reads some ten thousand task files at every start; these tests need none of them."""
    from lm_eval.tasks import TaskManager

    quick = partialmethod(TaskManager.__init__, include_defaults=False)
    monkeypatch.setattr(TaskManager, "__init__", quick)


def _run(lm: Any, tasks: Any, folder: Path, **options: Any) -> Any:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(folder), include_defaults=False, **options)
    return simple_evaluate(lm, tasks=tasks, task_manager=manager, bootstrap_iters=0)


def test_every_choice_is_scored_and_text_has_a_perplexity(tiny_lm: Any, tasks: Path) -> None:
    results = _run(tiny_lm, ["choices", "texts"], tasks)
    samples = results["samples"]["choices"]
    assert len(samples) == 3
    assert all(len(sample["resps"]) == 3 for sample in samples)
    scores = [response[0] for sample in samples for response in sample["resps"]]
    assert all(score[0] < 0 for score in scores)
    best = [int(np.argmax([each[0][0] for each in sample["resps"]])) for sample in samples]
    right = sum(n == sample["doc"]["gold"] for n, sample in zip(best, samples, strict=True))
    assert results["results"]["choices"]["acc,none"] == pytest.approx(right / 3)
    assert results["results"]["texts"]["bits_per_byte,none"] > 0


def test_in_a_chat_an_answer_is_scored_behind_the_whole_template(tiny_lm: Any, tasks: Path) -> None:
    """Its blank lines at the end are the prompt's, though lm-eval would move them to the answer."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    results = simple_evaluate(
        tiny_lm,
        tasks=["choices"],
        task_manager=manager,
        bootstrap_iters=0,
        apply_chat_template=True,
    )
    samples = results["samples"]["choices"]
    found = [response[0][0] for sample in samples for response in sample["resps"]]
    asked = [
        (sample["doc"]["question"], choice) for sample in samples for choice in ("7", "4", "12")
    ]
    wanted = tiny_lm.llm.score(asked, draws=16)
    assert found == pytest.approx([score.logprob for score in wanted], abs=1e-4)


def test_our_tasks_ask_and_grade_as_eval_does(tiny_lm: Any, tmp_path: Path) -> None:
    """Rendered by lm-eval, the prompts are token for token those of `rho-eos eval`."""
    require_sandbox()
    from lm_eval.tasks import TaskManager

    from rho_eos.cli.lm_eval import TASK_FILES

    for name in TASKS:
        path = FOLDER / f"{name}.jsonl"
        manager = TaskManager(
            include_path=str(TASK_FILES),
            include_defaults=False,
            metadata={f"{name}_data": str(path)},
        )
        task = manager.load([f"{name}_rho"])["tasks"][f"{name}_rho"]
        ours = find_task(name)
        samples = ours.load(path)
        task.build_all_requests(
            apply_chat_template=True,
            chat_template=tiny_lm.apply_chat_template,
            fewshot_as_multiturn=True,
            tokenizer_name=tiny_lm.tokenizer_name,
        )
        assert len(task.instances) == len(samples)
        for sample, request in zip(samples, task.instances, strict=True):
            messages = {"messages": ours.messages(sample)}
            params = DecodeParams(initial_length=1)
            ask = Ask(messages, params, answer_prefix=ours.answer_prefix)
            [want] = tiny_lm.llm.preparer.prepare(ask)
            assert tiny_lm.tok_encode(request.args[0]) == want.canvas.prompt.tolist()
            document = request.doc
            right = float(sample.id not in BROKEN)
            assert task.process_results(document, [ours.gold(sample)]) == {"acc": right}
            assert task.process_results(document, ["no idea"]) == {"acc": 0.0}


@pytest.mark.usefixtures("without_builtin_tasks")
def test_the_command_passes_everything_to_lm_eval(
    command: Command, tasks: Path, tmp_path: Path
) -> None:
    """lm-eval's own names, files and options; ours and the user's task folder are both found."""
    done = command(
        "lm-eval",
        *("--model", "rho_eos", "--model_args", "pretrained=tiny,policy=fixed,initial_length=8"),
        *("--tasks", "sums,gsm8k_rho", "--include_path", tasks, "--limit", "2"),
        *("--gen_kwargs", "initial_length=12,threshold=0.8,max_new_tokens=12"),
        *("--metadata", json.dumps({"gsm8k_data": str(FOLDER / "gsm8k.jsonl")})),
        *("--apply_chat_template", "--batch_size", "auto", "--log_samples"),
        *("--output_path", tmp_path / "out"),
    )
    assert done.code == 0, done.err
    assert "gsm8k_rho" in done.out
    (found,) = (tmp_path / "out").rglob("samples_sums_*.jsonl")
    texts = {json.loads(row)["doc"]["question"]: json.loads(row) for row in found.open()}
    params = DecodeParams(
        policy="fixed", initial_length=12, max_new_tokens=12, threshold=0.8, stop=("\n",)
    )
    wants = LLM("tiny").generate(QUESTIONS[:2], params)
    for question, want in zip(QUESTIONS[:2], wants, strict=True):
        assert texts[question]["resps"][0][0] == want.text
    (results,) = (tmp_path / "out").rglob("results_*.json")
    config = json.loads(results.read_text())["config"]
    assert config["rho_eos_params"] == {"policy": "fixed", "initial_length": 8}


@pytest.mark.usefixtures("without_builtin_tasks")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--tasks", "tiny_gsm_rho"], "say which model: --model rho_eos --model_args pretrained="),
        ([*OURS, "--tasks", "tiny_gms"], "lm-eval: Tasks not found: tiny_gms"),
        (OURS, "lm-eval: No tasks specified, or no tasks found."),
        (["--model", "rho_oes", "--tasks", "tiny_gsm_rho"], "lm-eval: Attempted to load model"),
        ([*OURS, "--config", "none.yaml"], "lm-eval: Config file not found"),
        ([*ASKED, "policy=fixed,rho_low=0.3"], "policy fixed has no parameter 'rho_low'"),
        ([*ASKED, "pretrained=tiny,polcy=fixed"], "unknown model argument 'polcy'"),
    ],
)
def test_what_is_missing_or_unknown_is_one_sentence(
    words: list[str], complaint: str, command: Command
) -> None:
    done = command("lm-eval", *words)
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith(f"rho-eos: {complaint}")


@pytest.mark.usefixtures("without_builtin_tasks")
def test_the_embedded_model_has_tasks_of_its_own(command: Command) -> None:
    """As documented: it is asked the problems it knows, and graded as by `rho-eos eval`."""
    words = ["--model", "rho_eos", "--model_args", "pretrained=tiny", "--apply_chat_template"]
    done = command("lm-eval", *words, "--tasks", "rho_tiny", "--limit", "3")
    assert done.code == 0, done.err
    rows = [line for line in done.out.splitlines() if "_rho" in line]
    assert len(rows) == 4
    for row in rows:
        assert "|acc" in row and float(row.split("|")[7]) >= 2 / 3 - 0.01, row


@pytest.mark.usefixtures("without_builtin_tasks")
@pytest.mark.parametrize("task", ["choices", "texts"])
def test_a_model_in_blocks_has_no_likelihood(
    task: str, command: Command, tasks: Path, tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path / "blocks", block_length=16)
    words = [*OURS, "--model_args", f"pretrained={folder}", "--include_path", tasks]
    done = command("lm-eval", *words, "--tasks", task)
    assert done.code == 2, done.out
    assert done.err.splitlines()[-1].startswith(
        "rho-eos: a block diffusion model has no likelihood"
    )
    done = command("lm-eval", *words, "--tasks", "sums", "--limit", "1")
    assert done.code == 0, done.err


def test_lm_evals_names_mean_ours() -> None:
    from rho_eos.lm_eval.arguments import decode_params, engine_limits, read_model_args

    def asked(given: Any, repeat: int = 0, **defaults: Any) -> Any:
        return DecodeParams.from_mapping(decode_params(defaults, given, repeat))

    task = {"until": ["\n", ""], "max_gen_toks": 20, "do_sample": False, "top_p": 0.9}
    assert asked(task) == DecodeParams(initial_length=20, max_new_tokens=20, stop=("\n",))
    sampled = asked({"do_sample": True, "top_p": 0.9}, repeat=2, temperature=0.5)
    assert (sampled.temperature, sampled.seed, sampled.top_p) == (0.5, 2, 0.9)
    assert asked({"do_sample": True}).temperature == 1.0
    with pytest.raises(UserError, match="unknown parameter 'min_p'"):
        asked({"min_p": 0.9, "do_sample": True})
    assert asked({"policy": "fixed"}, preset="sym", threshold=0.8).threshold == 0.8
    assert engine_limits("auto:4", None) == engine_limits(1, None) == {}
    assert engine_limits("8", "cpu") == {"max_rows": 8, "device": "cpu"}
    with pytest.raises(UserError, match="batch_size is 'x'"):
        engine_limits("x", None)
    assert read_model_args({"pretrained": "a", "mc_num": 3}).likelihood.mc_num == 3
    with pytest.raises(UserError, match="mc_num is 0"):
        read_model_args({"mc_num": 0})
