"""verl's rollout class against the real verl, which does not install beside our transformers.

So this is no part of the suite. With verl's files in a folder of their own:

    pip install --no-deps --target DIR verl==0.9.1 tensordict==0.10.0 codetiming omegaconf \
        antlr4-python3-runtime==4.9.3 hydra-core torchdata orjson
    PYTHONPATH=DIR python -m tests.trainers.check_verl
"""

import asyncio
from dataclasses import dataclass

import torch
from verl import DataProto
from verl.workers.config import RolloutConfig

from rho_eos import LLM
from rho_eos.text.ask import Ask
from rho_eos.trainers.verl import RhoEosRollout

TEXTS = ["2 + 2", "Ann has 3 eggs. 1) eats 1."]
DECODING = {"initial_length": 16, "threshold": 0.3}


@dataclass
class Model:
    local_path: str = "tiny"


def main() -> None:
    torch.set_num_threads(1)
    llm = LLM("tiny")
    rows = [llm.preparer.prepare(Ask(text, {}, id="x"))[0].canvas.prompt.tolist() for text in TEXTS]
    width = max(map(len, rows))
    ids = torch.tensor([[1] * (width - len(row)) + row for row in rows])
    seen = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    places = (seen.cumsum(1) - 1).clamp(min=0)
    prompts = DataProto.from_dict(
        tensors={"input_ids": ids, "attention_mask": seen, "position_ids": places},
        meta_info={"eos_token_id": 1, "pad_token_id": 1},
    )
    config = RolloutConfig(name="vllm", response_length=48, temperature=1.0, prompt_length=64)
    rollout = RhoEosRollout(config, Model(), None, decoding=DECODING)
    found = rollout.generate_sequences(prompts)
    limits = {**DECODING, "temperature": 1.0, "max_new_tokens": 48}
    expected = llm.rollout(TEXTS, [{**limits, "seed": number} for number in range(2)], n=1)
    for s, scored in enumerate(expected.scored):
        count = int(scored.sum())
        assert found.batch["responses"][s, :count].tolist() == expected.tokens[s][scored].tolist()
        assert int(found.batch["attention_mask"][s, width:].sum()) == count
    asyncio.run(rollout.update_weights(iter(LLM("terse").model.state_dict().items())))
    again = rollout.generate_sequences(prompts)
    assert (found.meta_info["weights_version"], again.meta_info["weights_version"]) == (0, 1)
    assert len(DataProto.concat([again, again])) == 4
    print("the rollout class of verl: samples, padding and weights are as they should be")


if __name__ == "__main__":
    main()
