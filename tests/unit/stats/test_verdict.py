"""METHOD 4.8: what may be said, and what is refused."""

import pytest

from nlq.stats.effects import Interval
from nlq.stats.paired import Design, Effect
from nlq.stats.verdict import Case, Word, decide

SEEDS = (0, 1, 2, 3, 4)


def _case(delta, half, *, fresh=5, refusals=(), sd=0.002, se_eval=None, design=Design.PAIRED, arms=1):
    effect = Effect(delta, 3.0, design, SEEDS, sd, se_eval, half / 2.8, 4.0, 100, 0.5, 1.0)
    joint, narrow = (Interval(delta - h, delta + h) for h in (half, 0.75 * half))
    return Case(effect, joint, narrow, fresh, refusals, arms)


@pytest.mark.parametrize(
    ("delta", "half", "word"),
    [
        (0.01, 0.005, Word.BETTER),
        (-0.01, 0.005, Word.WORSE),
        (0.001, 0.002, Word.EQUIVALENT),
        (0.001, 0.005, Word.UNDECIDED),
        (0.002, 0.0015, Word.UNDECIDED),  # clear of 0, but below δ_min = 0.003 and not inside it either
        (0.0031, 0.0001, Word.BETTER),
    ],
)
def test_words(delta, half, word):
    assert decide(_case(delta, half)).word == word


@pytest.mark.parametrize("delta", [0.05, -0.05])
def test_claims_are_refused_with_the_reason(delta):
    found = decide(_case(delta, 0.005, refusals=("budgets differ: 29 points against 2",)))
    assert found.word == Word.UNDECIDED
    assert "is refused" in found.reasons[0]
    assert "budgets differ: 29 points against 2" in found.reasons


def test_no_verdict_at_all_on_unmatched_data():
    assert decide(_case(0.001, 0.002, refusals=("data are unmatched",))).word == Word.UNDECIDED


def test_five_fresh_seeds():
    found = decide(_case(0.05, 0.005, fresh=2))
    assert (found.word, found.seeds_needed) == (Word.UNDECIDED, 3)
    assert any("2 of 5 seeds that did not choose the point" in reason for reason in found.reasons)


def test_undecided_says_how_many_seeds_are_lacking():
    found = decide(_case(0.003, 0.004, sd=0.004))
    assert found.word == Word.UNDECIDED
    assert found.seeds_needed == 16 - 5  # paired t, 80 % power: 0.003 at an sd of 0.004
    assert decide(_case(0.003, 0.004, sd=0.004, arms=3)).seeds_needed > found.seeds_needed


def test_seeds_do_not_help_where_the_evaluation_is_too_coarse():
    found = decide(_case(0.003, 0.01, se_eval=0.003))
    assert found.seeds_needed is None
    assert any("more validation windows" in reason for reason in found.reasons)


def test_one_seed_compares_checkpoints():
    found = decide(_case(0.05, 0.005, design=Design.CHECKPOINTS, fresh=1, sd=None))
    assert found.word == Word.UNDECIDED
    assert found.reasons == ("one seed: compares two checkpoints, not two architectures",)
    assert found.seeds_needed == 4
