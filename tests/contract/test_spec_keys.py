"""Spec keys of released systems. A change here throws away every run that anybody has trained."""

import pytest

from nlq.core.spec import DataSpec, ModelSpec, RunSpec, defaults_resolved, spec_key
from nlq.models.build import resolve

KEYS = {
    "baseline": "14b241947a18b91e205c7cce30c6c4968561fcf05e0db5f32a8231a0ae22f86b",
    "identity": "8d23807412017477a353263f081249242a6a095d19c9877d35dc0a792459edbd",
    "identity_mlp4.5": "eb35a71137de9cb56eeb72a564486b83a0f82790d6828eada10d4cfd74e9c2c2",
    "residual_linear": "4422561ddd56b5b2862d4a67139fc8b279edf60d56d82776533e9f7214b037fd",
    "nonlinear_q": "ae20c221814e15f63e4fae8621ddf743974361926cd749d7a6cfaf16bd6c2915",
    "nonlinear_q_unscaled": "296ba0c9a5039aad96a0804e00c1024ef842d7688b931201a86ef57d04c030df",
    "mlp_w": "dcc0fefc09e79d27429ce87a3057eda8a63c1ec0226ab2a64a1520b5c8031b96",
}


def resolved(**model: object) -> RunSpec:
    data = DataSpec(sha256="0" * 64)
    return resolve(defaults_resolved(RunSpec(data=data, model=ModelSpec.model_validate({"vocab": 320, **model}))))


@pytest.mark.parametrize("variant", KEYS)
def test_golden_keys(variant: str) -> None:
    assert spec_key(resolved(variant=variant)) == KEYS[variant]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"variant": "identity_mlp4.5"}, {"variant": "identity", "mlp": {"ratio": 4.5}}),
        ({"variant": "mlp_w", "mlp": {"ratio": 4}}, {"variant": "baseline"}),
        ({"mlp": {"ratio": 4.75}}, {"mlp": {"hidden": 608}}),
        ({"variant": "nonlinear_q"}, {"variant": "identity", "query": {"kind": "bottleneck", "rank": 64}}),
        ({"kv_heads": 4}, {}),
    ],
)
def test_equal_systems_have_equal_keys(one: dict[str, object], other: dict[str, object]) -> None:
    assert spec_key(resolved(**one)) == spec_key(resolved(**other))
