"""Spec keys of released systems. A change here throws away every run that anybody has trained."""

import pytest

from nlq.core.spec import DataSpec, ModelSpec, RunSpec, defaults_resolved, spec_key
from nlq.models.build import resolve

KEYS = {
    "baseline": "6270f0d5d9107eba7271e7e03f915357b1e5c9033a0a9389db46aa97eea287b3",
    "identity": "8ae2e36fed1688e924e6b813250715c0aa1172cf052e71e254ca763cbce6dec0",
    "identity_mlp4.5": "13d2a80670f2cf4948fc5bccbe781015d989cda17512006b2f65a42b9ba2bdba",
    "residual_linear": "4c93d2d12612162678d328b1d1b94aacf62b18a7de1c7b002fbcb444422cc419",
    "nonlinear_q": "03dd227511f650b3259fdccd25ddd47fe19972e2ee170653745f9d34b72b2946",
    "nonlinear_q_unscaled": "9c822c6b3ec5c8115695081d98c27c228b036f944562d70843ec4604e2114b54",
    "mlp_w": "4ff7c4fb1fc1ef84a3104ab225d0a2779d64feea5e7421afc2bbd5eb8b3d3d16",
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
