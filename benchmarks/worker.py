"""One decoder on one case in a process of its own, so that memory can be told apart.

`python -m benchmarks.worker CASE DECODER [--quick]` prints one line of JSON.
"""

import argparse
import dataclasses
import json

from benchmarks.cases import CASES
from benchmarks.measure import run_engine, run_reference

DECODERS = {
    "engine": run_engine,
    "reference": run_reference,
    "reference, stopping early": lambda case: run_reference(case, early_stop=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("decoder", choices=DECODERS)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    case = CASES[options.case](options.quick)
    decode = DECODERS[options.decoder]
    # The first forward of a process pays for what all later ones find ready.
    short = case.params.replaced(initial_length=1, max_new_tokens=1)
    decode(dataclasses.replace(case, prompts=[case.prompts[0][:2]], params=short))
    model = {
        "parameters": sum(weight.numel() for weight in case.model.parameters()),
        "vocabulary": case.model.config.vocab_size,
    }
    print(json.dumps(decode(case).as_dict() | model))


if __name__ == "__main__":
    main()
