"""Learning rates worked out by hand: warm-up over 4 steps to 1, the end at step 24."""

from typing import Any

import pytest

from nlq.core.optim import OptimSpec, optim_defaults
from nlq.training.schedule import learning_rate

WARMUP = {0: 0.2, 1: 0.4, 3: 0.8, 4: 1.0}


def resolved(**settings: Any) -> OptimSpec:
    optim = OptimSpec.model_validate({"lr_max": 1.0, "warmup_steps": 4, **settings})
    return optim.model_copy(update=optim_defaults(optim, 24))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"schedule": "cosine"}, {9: 0.1 + 0.45 * (1 + 0.5**0.5), 14: 0.55, 24: 0.1, 10**6: 0.1}),
        ({"schedule": "cosine", "lr_min": 0}, {14: 0.5, 19: 0.5 * (1 - 0.5**0.5), 24: 0.0}),
        ({"schedule": "linear"}, {5: 0.95, 9: 0.75, 14: 0.5, 23: 0.05, 24: 0.0, 25: 0.0, 10**6: 0.0}),
        ({"schedule": "linear", "lr_min_ratio": 0.2}, {5: 0.96, 14: 0.6, 23: 0.24, 24: 0.2, 10**6: 0.2}),
        ({"schedule": "linear", "decay_steps": 14}, {9: 0.5, 13: 0.1, 14: 0.0, 23: 0.0}),
        (
            {"schedule": "wsd", "decay_share": 0.25},
            {5: 1.0, 17: 1.0, 18: 1.0, 19: 5 / 6, 21: 0.5, 23: 1 / 6, 24: 0.0, 10**6: 0.0},
        ),
        ({"schedule": "wsd", "lr_min_ratio": 0.4}, {18: 1.0, 19: 1.0, 20: 0.88, 23: 0.52, 24: 0.4, 99: 0.4}),
    ],
)
def test_rates_by_hand(settings: dict[str, Any], expected: dict[int, float]) -> None:
    optim = resolved(**settings)
    rates = {step: learning_rate(step, optim) for step in WARMUP | expected}
    assert rates == pytest.approx(WARMUP | expected, rel=1e-14)


@pytest.mark.parametrize("schedule", ["cosine", "linear", "wsd"])
def test_a_rate_never_leaves_its_bounds_nor_rises_after_the_warm_up(schedule: str) -> None:
    optim = resolved(schedule=schedule, lr_max=3e-3, lr_min=7e-4)
    rates = [learning_rate(step, optim) for step in range(40)]
    assert rates[: 4 + 1] == sorted(rates[: 4 + 1])
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert all(7e-4 <= rate <= 3e-3 for rate in rates[4:])
    assert rates[4] == 3e-3


def test_wsd_over_all_steps_is_the_straight_line() -> None:
    line, plateau = resolved(schedule="linear", warmup_steps=0), resolved(schedule="wsd", decay_share=1, warmup_steps=0)
    assert [learning_rate(s, plateau) for s in range(30)] == [learning_rate(s, line) for s in range(30)]
