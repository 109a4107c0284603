"""From seconds to the figures that are printed."""

import pytest

from nlq.bench import arms, gpu
from nlq.bench.compare import Setting, row
from nlq.bench.interleave import Turns
from nlq.bench.sizes import SIZES, Size, precision_of, sizes_named, spec_of
from nlq.core.errors import NlqError
from nlq.models.cost import cost
from nlq.models.variants import variants

SETTING = Setting("cpu", 1, "bf16", Turns(), {})
SMALLEST = Size("smallest", 1, 2, 16, 8, 2, 50)


def test_a_size_in_figures() -> None:
    taken = {"floor": [1.0, 2.0], "plain": [4.0, 8.0], "tuned": [3.0, 6.0], "nlq": [2.0, 4.0]}
    made = {name: (f"{name} so", 10**6) for name in taken}
    found = row(SIZES["tiny"], SETTING, taken, made)
    assert (found["ratio_plain"], found["ratio_tuned"], found["share_of_floor"]) == (2.0, 1.5, 0.5)
    assert found["ratio_plain_low"] == found["ratio_plain_high"] == 2.0
    assert found["tokens_per_step"] == 12 * 64
    assert found["rounds"] == 2
    assert found["contenders"]["nlq"]["tokens_per_s"] == pytest.approx(12 * 64 / 3.0)
    assert found["contenders"]["plain"]["share_of_floor"] == 0.25
    assert found["contenders"]["floor"]["share_of_floor"] == 1.0
    assert found["contenders"]["tuned"]["how"] == "tuned so"


def test_arms_in_figures() -> None:
    taken = {}
    for factor, name in enumerate((v for v in variants() if v != arms.BASELINE), start=1):
        own = {f"{name} {work}": [0.1 * factor, 0.2 * factor] for work in arms.WORKS}
        base = {f"{arms.BASELINE} {work}": [0.1, 0.2] for work in arms.WORKS}
        taken[name] = ({**own, **base}, 10**6)
    base, *others = arms.rows(SMALLEST, taken)
    assert base["variant"] == arms.BASELINE
    assert base["train_ms"] == pytest.approx(150.0)
    for factor, one in enumerate(others, start=1):
        assert [one[f"ratio_{work}"] for work in arms.WORKS] == pytest.approx([factor] * 3)
    counted = {one["variant"]: one["ratio_flops"] for one in others}
    assert counted["identity"] < 1 < counted["mlp_w"]
    assert counted["residual_linear"] == 1


def test_sizes_by_name() -> None:
    assert [size.name for size in sizes_named([])] == ["tiny", "small", "gpt2"]
    assert [size.name for size in sizes_named(["gpt2", "tiny", "gpt2"])] == ["gpt2", "tiny"]
    with pytest.raises(NlqError, match='did you mean "small"'):
        sizes_named(["smal"])


def test_gpt2_is_gpt2() -> None:
    assert cost(spec_of(SIZES["gpt2"], "bf16").model).non_embedding_params == 84_953_856


def test_gpus_take_bf16() -> None:
    assert precision_of("cuda:0") == "bf16"
    assert precision_of("cpu") in ("bf16", "float32")


@pytest.mark.parametrize(
    ("device", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA GeForce RTX 4090", 165e12),
        ("NVIDIA L40", None),
        ("cpu", None),
    ],
)
def test_published_peaks(device: str, peak: float | None) -> None:
    assert gpu.published_peak(device) == peak


def test_a_gpu_in_figures() -> None:
    taken = {name: {"reference": [2.0, 4.0], "nlq": [1.0, 2.0]} for name in ("baseline", "mlp-4.75")}
    peaks = {gpu.REFERENCE: 3 * 10**9, "baseline": 2 * 10**9, "mlp-4.75": 2 * 10**9}
    found = gpu.rows(SMALLEST, taken, peaks, rate=1e9, published=None)
    assert [one["name"] for one in found] == [gpu.REFERENCE, "baseline", "mlp-4.75"]
    assert found[1]["ratio"] == 2.0
    flops = cost(spec_of(SMALLEST, "bf16").model).flops_per_token
    assert found[1]["mfu_measured"] == pytest.approx(16 / 1.5 * flops / 1e9)
    assert found[2]["mfu_measured"] > found[1]["mfu_measured"]
    assert found[0]["mfu_published"] is None
    assert gpu._cells(found[0])[2:] == ["1", "0.0 %", "–", "3.00 GB"]
    assert gpu.table(SMALLEST, "a device", found).row_count == 3
