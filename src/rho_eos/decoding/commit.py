"""Which MASKs to fill in this step. Pure functions over the predictions at candidate positions."""

import dataclasses

import numpy as np

from rho_eos.base.settings import setting
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.params import LONGEST, DecodeParams
from rho_eos.decoding.policy import Positions, Prediction, View

TIE = (
    "where no MASK is more confident than τ, those within this of the most confident one tie with "
    "it, and the first of them is committed"
)


class CommitParams(DecodeParams):
    """The parameters of the commit rule that most policies share."""

    threshold: float = setting(0.9, "commit every MASK more confident than this (τ)", gt=0, le=1)
    block_length: int | None = setting(
        32, "commit within one block at a time; none: anywhere", ge=1, le=LONGEST
    )
    defer_eos: bool = setting(False, "commit EOS in a block only when nothing else is left in it")
    tie: float = setting(0.0, TIE, ge=0, le=1)


def first_open_block(masked: Positions, block_length: int | None) -> Positions:
    """The MASKs of the first aligned block that still holds one; all of them without blocks."""
    if block_length is None or len(masked) == 0:
        return masked
    end = (int(masked[0]) // block_length + 1) * block_length
    return masked[: np.searchsorted(masked, end)]


def without_eos_if_possible(candidates: Prediction, special: SpecialTokens) -> Prediction:
    """The candidates that would not end the text, unless all of them would."""
    goes_on = ~special.is_end(candidates.token)
    return candidates.at(candidates.positions[goes_on]) if goes_on.any() else candidates


def with_ends_last(candidates: Prediction, special: SpecialTokens) -> Prediction:
    """The same candidates; those that would end the text count as less sure than all others."""
    ends = special.is_end(candidates.token)
    return dataclasses.replace(candidates, confidence=candidates.confidence - ends)


def above_threshold(candidates: Prediction, threshold: float, tie: float = 0.0) -> Positions:
    """The τ rule: every candidate more confident than τ, or else the single most confident one.

    Among equals it is the leftmost, and a difference of up to `tie` counts as none.
    """
    confidence = candidates.confidence
    chosen = candidates.positions[confidence > threshold]
    if len(chosen) or not len(confidence):
        return chosen
    return candidates.positions[confidence >= confidence.max() - tie][:1]


def most_confident(candidates: Prediction, count: int) -> Positions:
    """The `count` most confident candidates; among equals the leftmost."""
    order = np.argsort(-candidates.confidence, kind="stable")
    return np.sort(candidates.positions[order[:count]])


def commit_by_threshold(
    view: View, prediction: Prediction, params: CommitParams, special: SpecialTokens
) -> Positions:
    """The rule of docs/method.md §2, which ρ-EOS, DAEDAL and the fair control share."""
    candidates = prediction.at(first_open_block(view.masked, params.block_length))
    if params.defer_eos:
        candidates = without_eos_if_possible(candidates, special)
    return above_threshold(candidates, params.threshold, params.tie)
