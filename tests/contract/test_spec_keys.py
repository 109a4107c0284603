"""Spec keys of released systems. A change here throws away every run that anybody has trained."""

import pytest

from nlq.core.spec import DataSpec, ModelSpec, OptimSpec, RunSpec, defaults_resolved, spec_key
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

OPTIM_KEYS: dict[str, tuple[dict[str, object], str]] = {
    "linear": ({"schedule": "linear"}, "30ec764ac10b27ec672bee878f44769600e4adf151f5d58ae665c9631af48073"),
    "wsd": ({"schedule": "wsd"}, "0de4d7d68b1ec1de3635afd9bbfdacdb49d0f3838a9926d56d01a3a6ac2b3244"),
    "wsd of a tenth": (
        {"schedule": "wsd", "decay_share": 0.1},
        "af67f69b786f1186328e7d6515834eebd8289375ea3de1023666ff6e6574c724",
    ),
    "muon": ({"kind": "muon"}, "17f21e98a1bf1829b77977bbf0b5a592f84360bafc353fa7d9f24894d16614b7"),
    "muon's momentum": (
        {"kind": "muon", "momentum": 0.9},
        "99f3b66cafe44ac8a82c8b104eb8471a204941787b6241e72daa8f228d53ce38",
    ),
    "muon without Nesterov": (
        {"kind": "muon", "nesterov": False},
        "358d3df22291acdfd0ddb82d1838cca7421f7fe118e7fb6644f99ea213a88acc",
    ),
    "muon's first scale": (
        {"kind": "muon", "muon_scale": "original"},
        "fd1a24826c9465d876b47f33231f6e1107efbc0d794c69fdb9ee2e039768358b",
    ),
    "muon's adamw": (
        {"kind": "muon", "adamw_lr_ratio": 0.1},
        "e87d34da2866604fb891b526f7e93c67123dbd19b5a18f32048f1576b814fd0f",
    ),
    "sgd": ({"kind": "sgd"}, "8009d92d3a8657a6508a3896d5dba36af287f35787a2c91ec46ce4b7d868f2ca"),
    "sgd's momentum": (
        {"kind": "sgd", "momentum": 0.0},
        "5f2c690b3f478aafb8718a7c451c6fb2945b7fc117fd00c18df63d07a66b44ac",
    ),
    "sgd with Nesterov": (
        {"kind": "sgd", "nesterov": True},
        "372a38a1e939aefa59f98ded44a6129b0381ddecbd298612c0e9f8ad1328fba8",
    ),
}


def resolved(optim: dict[str, object] | None = None, **model: object) -> RunSpec:
    data, shape = DataSpec(sha256="0" * 64), ModelSpec.model_validate({"vocab": 320, **model})
    return resolve(defaults_resolved(RunSpec(data=data, model=shape, optim=OptimSpec.model_validate(optim or {}))))


@pytest.mark.parametrize("variant", KEYS)
def test_golden_keys(variant: str) -> None:
    assert spec_key(resolved(variant=variant)) == KEYS[variant]


@pytest.mark.parametrize("name", OPTIM_KEYS)
def test_golden_keys_of_optimisers_and_schedules(name: str) -> None:
    settings, key = OPTIM_KEYS[name]
    assert spec_key(resolved(settings)) == key


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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"kind": "adamw", "schedule": "cosine", "lr_min_ratio": 0.1}, {}),
        (
            {
                "kind": "muon",
                "momentum": 0.95,
                "nesterov": True,
                "muon_scale": "match_rms_adamw",
                "adamw_lr_ratio": 1,
            },
            {"kind": "muon"},
        ),
        ({"kind": "sgd", "momentum": 0.9, "nesterov": False}, {"kind": "sgd"}),
        ({"schedule": "linear", "lr_min": 0}, {"schedule": "linear"}),
        ({"schedule": "wsd", "lr_min_ratio": 0, "decay_share": 0.2}, {"schedule": "wsd"}),
    ],
)
def test_a_default_written_out_leaves_the_key(one: dict[str, object], other: dict[str, object]) -> None:
    assert spec_key(resolved(one)) == spec_key(resolved(other))


def test_each_setting_of_an_optimiser_or_schedule_changes_the_key() -> None:
    keys = {spec_key(resolved(settings)) for settings, _ in OPTIM_KEYS.values()} | {spec_key(resolved())}
    assert len(keys) == len(OPTIM_KEYS) + 1
