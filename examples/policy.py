r"""A length policy of one's own: room is added for as long as the model sees no end of the text.

rho-eos watch "Eva has 7 keys. 1) wins 8. How many are there now?" --plugin examples/policy.py \
    --policy until-eos --chunk 16
rho-eos eval --tasks tiny-gsm --limit 50 --plugin examples/policy.py --policy until-eos --out …
"""

from rho_eos import (
    Append,
    CommitParams,
    Policy,
    Prediction,
    Step,
    View,
    commit_by_threshold,
    register_policy,
    setting,
)


class UntilEosParams(CommitParams):  # threshold, block_length and what all policies share
    chunk: int = setting(32, "MASKs that are appended at a time", ge=1, le=1024)


@register_policy
class UntilEos(Policy):
    name = "until-eos"
    title = "Until EOS"
    summary = "Appends MASKs for as long as no open position would become EOS."
    Params = UntilEosParams
    edits = (Append,)

    def step(self, view: View, prediction: Prediction) -> Step:
        commit = commit_by_threshold(view, prediction, self.params, self.special)
        ends = prediction.at(view.masked).token == self.special.eos
        room = self.params.max_new_tokens - view.length
        if ends.any() or self.special.eos in view.canvas or room <= 0:
            return Step(commit, signal=float(ends.mean()))
        return Step(commit, (Append(min(self.params.chunk, room)),), signal=0.0)
