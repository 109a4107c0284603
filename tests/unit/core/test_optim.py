"""Settings of the optimiser and its schedule: computed defaults, and those that nothing would read."""

from typing import Any

import pytest

from nlq.core.optim import OptimSpec, optim_defaults, optim_mistakes

STEPS = 200


def resolved(**settings: Any) -> OptimSpec:
    optim = OptimSpec.model_validate(settings)
    return optim.model_copy(update=optim_defaults(optim, STEPS))


def mistakes(**settings: Any) -> dict[str, tuple[str, str]]:
    return {m.path: (m.message, m.hint) for m in optim_mistakes(OptimSpec.model_validate(settings), STEPS)}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (None, None, None, None)),
        ({"kind": "muon"}, (0.95, True, "match_rms_adamw", 1.0)),
        ({"kind": "muon", "momentum": 0, "nesterov": False}, (0.0, False, "match_rms_adamw", 1.0)),
        ({"kind": "muon", "muon_scale": "original", "adamw_lr_ratio": 0.1}, (0.95, True, "original", 0.1)),
        ({"kind": "sgd"}, (0.9, False, None, None)),
        ({"kind": "sgd", "momentum": 0.8, "nesterov": True}, (0.8, True, None, None)),
    ],
)
def test_what_each_optimiser_reads_is_filled_in(settings: dict[str, Any], expected: tuple[Any, ...]) -> None:
    optim = resolved(**settings)
    assert (optim.momentum, optim.nesterov, optim.muon_scale, optim.adamw_lr_ratio) == expected


@pytest.mark.parametrize(
    ("settings", "lr_min", "decay_share"),
    [
        ({}, 0.2, None),
        ({"schedule": "linear"}, 0.0, None),
        ({"schedule": "wsd"}, 0.0, 0.2),
        ({"schedule": "linear", "lr_min_ratio": 0.1}, 0.2, None),
        ({"schedule": "wsd", "lr_min": 0.5, "decay_share": 0.4}, 0.5, 0.4),
        ({"lr_min_ratio": 0}, 0.0, None),
    ],
)
def test_where_each_schedule_ends(settings: dict[str, Any], lr_min: float, decay_share: float | None) -> None:
    optim = resolved(lr_max=2.0, **settings)
    assert (optim.lr_min, optim.lr_min_ratio) == (pytest.approx(lr_min), None)
    assert (optim.decay_share, optim.decay_steps) == (decay_share, STEPS)


@pytest.mark.parametrize(
    ("settings", "start"),
    [
        ({"schedule": "cosine"}, 10),
        ({"schedule": "linear"}, 10),
        ({"schedule": "wsd"}, 160),
        ({"schedule": "wsd", "decay_share": 0.1, "decay_steps": 100}, 90),
        ({"schedule": "wsd", "decay_share": 0.001}, 199),
        ({"schedule": "wsd", "decay_share": 1, "warmup_steps": 0}, 0),
    ],
)
def test_where_the_decay_starts(settings: dict[str, Any], start: int) -> None:
    assert resolved(**{"warmup_steps": 10, **settings}).decay_start == start


@pytest.mark.parametrize(
    ("settings", "name", "message", "hint"),
    [
        ({"momentum": 0.9}, "momentum", "optimiser adamw does not read momentum", "optim.kind: muon or sgd"),
        ({"nesterov": False}, "nesterov", "optimiser adamw does not read nesterov", "optim.kind: muon or sgd"),
        ({"adamw_lr_ratio": 1}, "adamw_lr_ratio", "optimiser adamw does not read adamw_lr_ratio", "optim.kind: muon"),
        ({"kind": "sgd", "beta1": 0.8}, "beta1", "optimiser sgd does not read beta1", "optim.kind: adamw or muon"),
        ({"kind": "sgd", "beta2": 0.8}, "beta2", "optimiser sgd does not read beta2", "optim.kind: adamw or muon"),
        ({"kind": "sgd", "eps": 1e-6}, "eps", "optimiser sgd does not read eps", "optim.kind: adamw or muon"),
        (
            {"kind": "sgd", "muon_scale": "original"},
            "muon_scale",
            "optimiser sgd does not read muon_scale",
            "optim.kind: muon",
        ),
        ({"decay_share": 0.2}, "decay_share", "schedule cosine does not read decay_share", "optim.schedule: wsd"),
        (
            {"schedule": "linear", "decay_share": 0.2},
            "decay_share",
            "schedule linear does not read decay_share",
            "optim.schedule: wsd",
        ),
        (
            {"kind": "sgd", "momentum": 0, "nesterov": True},
            "nesterov",
            "needs a momentum above 0",
            "optim.momentum: 0.9",
        ),
        (
            {"schedule": "wsd", "decay_share": 0.9},
            "decay_share",
            "the decay begins at step 20, before the end of warmup_steps 30",
            "optim.warmup_steps: 20 or fewer",
        ),
    ],
)
def test_each_misfit_is_one_mistake(settings: dict[str, Any], name: str, message: str, hint: str) -> None:
    assert mistakes(**settings) == {f"optim.{name}": (message, hint)}


@pytest.mark.parametrize(
    "settings",
    [
        {"beta1": 0.8, "beta2": 0.9, "eps": 1e-6},
        {"kind": "muon", "beta1": 0.8, "momentum": 0.9, "nesterov": False, "muon_scale": "original"},
        {"kind": "sgd", "beta1": 0.9, "momentum": 0, "nesterov": False},
        {"schedule": "wsd", "decay_share": 0.85},
    ],
)
def test_what_is_read_or_at_its_default_is_fine(settings: dict[str, Any]) -> None:
    assert mistakes(**settings) == {}
