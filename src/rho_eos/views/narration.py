"""What a step means, in words for people who watch."""

from rho_eos.base.outputs import StepRecord
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.registry import find_policy


def explain(params: DecodeParams, record: StepRecord) -> str:
    """What a step found out, if anything, and why it did what it did to the length.

    No policy is asked about a window.
    """
    if not record.refresh:
        computed = f"{record.computed} of {record.exact} positions computed"
        return f"A window: {computed}, so the length holds."
    why = find_policy(params.policy).explain(params, record)
    return f"{record.note} {why}" if record.note else why
