"""When a difference may be called better, worse or equivalent (METHOD 4.8)."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from nlq.core.errors import NlqError
from nlq.stats.effects import Interval
from nlq.stats.paired import Design, Effect
from nlq.stats.power import seeds_needed

SMALLEST_CLAIM = 0.001
"""δ_min as a fraction of the baseline's loss: a smaller difference is no claim."""
SEEDS_FOR_A_CLAIM = 5
_REACH = 1.96 + 0.84
"""Standard errors that a gap must have to be found with 80 % power."""


class Word(StrEnum):
    """What may be said of an arm beside the baseline."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"


class Verdict(NamedTuple):
    """The word, why it is not another, and the seeds per arm still lacking (None where seeds would not help)."""

    word: Word
    reasons: tuple[str, ...]
    seeds_needed: int | None = None


class Case(NamedTuple):
    """What a verdict rests on. Intervals of δ in nats: `joint` at 95 % for all arms together, `narrow` at 90 % alone.

    `fresh` counts seeds that did not choose the point, `refusals` say what forbids any claim, `arms` is the size of the
    family.
    """

    effect: Effect
    joint: Interval | None
    narrow: Interval | None
    fresh: int
    refusals: Sequence[str]
    arms: int


def smallest_claim(effect: Effect) -> float:
    """δ_min in nats: 0.1 % of the baseline's loss."""
    return SMALLEST_CLAIM * effect.baseline_nats


def decide(case: Case) -> Verdict:
    """Better: simultaneous lower bound above 0, δ ≥ δ_min, five fresh seeds, nothing that refuses it; worse alike.

    Equivalent: the 90 % interval lies inside ±δ_min (two one-sided tests), which needs no number of seeds, but nothing
    that refuses it. Otherwise undecided.
    """
    word = said(case)
    lacks = tuple(case.refusals) if word == Word.EQUIVALENT else tuple(_lacks(case))
    if word == Word.UNDECIDED:
        return Verdict(word, (*_unclear(case), *lacks), _needed(case))
    if lacks:
        return Verdict(Word.UNDECIDED, (f'"{word}" is refused', *lacks), _needed(case))
    return Verdict(word, ())


def said(case: Case) -> Word:
    """What the intervals alone say."""
    claim, effect = smallest_claim(case.effect), case.effect
    if effect.design == Design.CHECKPOINTS or case.joint is None or case.narrow is None:
        return Word.UNDECIDED
    if case.joint.low > 0 and effect.delta_nats >= claim:
        return Word.BETTER
    if case.joint.high < 0 and -effect.delta_nats >= claim:
        return Word.WORSE
    return Word.EQUIVALENT if -claim < case.narrow.low and case.narrow.high < claim else Word.UNDECIDED


def _lacks(case: Case) -> Iterator[str]:
    yield from case.refusals
    if case.effect.design != Design.CHECKPOINTS and case.fresh < SEEDS_FOR_A_CLAIM:
        chosen = " that did not choose the point" if case.fresh < len(case.effect.seeds) else ""
        yield f"{case.fresh} of {SEEDS_FOR_A_CLAIM} seeds{chosen}"


def _unclear(case: Case) -> Iterator[str]:
    effect = case.effect
    if effect.design == Design.CHECKPOINTS:
        yield str(effect.design)
    elif case.joint is not None and case.joint.low <= 0 <= case.joint.high:
        yield "the interval holds 0"
    else:
        yield f"clear of 0 but not of δ_min = {smallest_claim(effect):.4f} nats"
    if _too_coarse(effect):
        yield f"the evaluation's own error is {effect.se_eval_nats:.4f} nats: more validation windows, not seeds"


def _too_coarse(effect: Effect) -> bool:
    return effect.se_eval_nats is not None and _REACH * effect.se_eval_nats > _gap(effect)


def _gap(effect: Effect) -> float:
    return max(abs(effect.delta_nats), smallest_claim(effect))


def _needed(case: Case) -> int | None:
    """Seeds per arm beyond the fresh ones, for 80 % power at the gap as measured, or at δ_min where that is larger."""
    effect = case.effect
    if _too_coarse(effect):
        return None
    enough = SEEDS_FOR_A_CLAIM
    if effect.sd_nats:
        try:
            pair = effect.sd_nats / 2**0.5  # of one run, were both arms alike and unrelated
            enough = max(enough, seeds_needed(_gap(effect), pair, correlation=0.0, alpha=0.05 / case.arms))
        except NlqError:
            return None
    return max(0, enough - case.fresh) or None
