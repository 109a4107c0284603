"""`nlq bench` at the smallest size that there can be: real processes, no judgement of times."""

import json
import math
from collections.abc import Callable

import pytest
import torch

from nlq.bench import gpu, sizes, sweep
from nlq.bench.child import Child
from nlq.bench.compare import Setting, made_up_tokens, order
from nlq.bench.interleave import Turns
from nlq.bench.sizes import Size
from nlq.core.errors import NlqError

Run = Callable[..., object]

SMALLEST = Size("smallest", 1, 2, 16, 8, 2, 320)
QUICK = Setting("cpu", 1, "float32", Turns(seconds=0.01, rounds=1), {}, compiled=False)


@pytest.fixture(autouse=True)
def _a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sizes.SIZES, SMALLEST.name, SMALLEST)


def test_a_size_as_json(nlq: Run) -> None:
    options = [
        "--size",
        "smallest",
        "--threads",
        1,
        "--device",
        "cpu",
        "--rounds",
        2,
        "--seconds",
        0.01,
        "--no-compile",
    ]
    done = nlq("bench", *options, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    (row,) = found["rows"]
    assert row["size"] == "smallest"
    assert row["rounds"] == 2
    for name in ("ratio_plain", "ratio_tuned", "share_of_floor"):
        assert 0 < row[f"{name}_low"] <= row[name] <= row[f"{name}_high"] < math.inf
    assert set(row["contenders"]) == {"floor", "plain", "tuned", "nlq"}
    assert all(one["peak_memory_bytes"] > 10**7 for one in row["contenders"].values())
    assert row["contenders"]["nlq"]["how"].endswith("not compiled")
    assert found["arms"] == []
    assert found["sweep"] is None


def test_arms_as_a_table(nlq: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nlq.bench.arms.variants", lambda: ("baseline", "nonlinear_q"))
    done = nlq(
        "bench", "--arms", "--size", "smallest", "--threads", 1, "--rounds", 1, "--seconds", 0.01, "--no-compile"
    )
    assert done.code == 0, done.err
    assert "nonlinear_q" in done.out
    assert "decode: one more token after a context, no cache" in " ".join(done.out.split())
    assert "share of floor" in done.out


def test_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "LINES", 2000)
    row = sweep.sweep(QUICK, lambda _: None, SMALLEST, steps=2, runs=2)
    assert row["ratio"] == pytest.approx(row["plain_s"] / row["nlq_s"])
    assert (row["runs"], row["steps"]) == (2, 2)


def test_the_gpu_table_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "ARMS", {"baseline": "baseline", "mlp-4.75": "mlp_w"})
    said: list[str] = []
    found = gpu.measure(SMALLEST, QUICK, said.append)
    assert [row["name"] for row in found] == [gpu.REFERENCE, "baseline", "mlp-4.75"]
    assert all(row["mfu_measured"] > 0 and row["mfu_published"] is None for row in found)
    assert said[0] == "warming up the nanoGPT-style step"
    assert len(gpu.measure(SMALLEST, QUICK, said.append, limit_s=0.0)) == 2
    assert said[-1] == "mlp-4.75: left out, the time is up"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["gpu"])
    with pytest.raises(SystemExit, match=r"needs a CUDA GPU, and PyTorch .* sees none here: see nlq doctor"):
        gpu.main()


def test_a_contender_that_dies_is_an_error_of_one_screen() -> None:
    with made_up_tokens(50) as tokens:
        wanted = order(SMALLEST, QUICK, "nlq", tokens, "no_such_variant")
        with (
            Child(wanted, {}) as child,
            pytest.raises(NlqError, match=r"nlq at size smallest ended with code 1: .*no_such"),
        ):
            child.make()
