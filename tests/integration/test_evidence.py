"""From tuning over fresh seeds to a verdict, through the command line, with real training on a small text."""

import json
from collections.abc import Callable
from pathlib import Path

from nlq.store.reader import Reader

Run = Callable[..., object]

TUNED = """
name: tuned
arms:
  baseline: {}
  nonlinear-q: {model.variant: nonlinear_q}
grid: {optim.lr_max: [1e-3, 3e-3]}
seeds: [0]
"""


def _rows(nlq: Run) -> list[dict]:
    return json.loads(nlq("report", "--evidence", "--json").out)["rows"]


def test_fresh_seeds_are_queued_trained_and_claimed_on(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    spec = write_spec(TUNED)
    assert nlq("sweep", spec).code == 0
    before = _rows(nlq)
    assert all("one seed: compares two checkpoints, not two architectures" in row["reasons"] for row in before)
    asked = json.loads(nlq("confirm", "--seeds", 2, "--json").out)
    assert (asked["seeds"], asked["runs"], asked["new"]) == ([1, 2], 4, 4)
    assert json.loads(nlq("confirm", "--seeds", 2, "--json").out)["new"] == 0
    assert len(Reader(tmp_path / "runs.db").sweep("tuned").members) == 4 + 4
    assert [row["point"] for row in _rows(nlq)] == [row["point"] for row in before]  # while they wait, too
    assert nlq("work").code == 0
    for row, old in zip(_rows(nlq), before, strict=True):
        assert (row["point"], row["budget_points"], row["budget_seeds"]) == (old["point"], 2, 1)
        assert (row["n_seeds"], row["n_fresh"], row["design"]) == (2, 2, "paired by seed")
        assert row["se_eval_nats"] is None  # the test's text is one document
        assert row["delta_nats_interval"][0] < row["delta_nats"] < row["delta_nats_interval"][1]
    assert "edge: not tuned" in nlq("report", "--evidence").out
    assert "the interval holds seeds only" in nlq("report", "--evidence").out
    assert "paired by seed; 2 seeds: 1, 2" in nlq("report", "--why", "nonlinear-q").out
    assert nlq("report", "--why", "nonlinear").code == 2
    assert nlq("sweep", spec).code == 0
    assert json.loads(nlq("confirm", "--seeds", 2, "--json").out)["new"] == 0
    assert [row["n_fresh"] for row in _rows(nlq)] == [2]


SEEDS = """
name: seeds
arms: {baseline: {}}
seeds: [0, 1, 2, 3, 4]
"""
SINGLE = """
name: single
arms:
  baseline: {}
  nonlinear-q: {model.variant: nonlinear_q}
seeds: [0]
"""


def test_sigma_is_measured_kept_and_used(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    assert nlq("sweep", write_spec(SEEDS)).code == 0
    measured = json.loads(nlq("noise", "--json").out)["rows"][0]
    (kept,) = Reader(tmp_path / "runs.db").noises()
    assert (kept.sigma_nats, kept.seeds, kept.arm) == (measured["sigma_nats"], 5, "baseline")
    assert kept.spec["train"]["steps"] == 12
    assert json.loads(nlq("power", "--json").out)["sigma_nats"] == kept.sigma_nats
    assert "at the ends of that interval" in nlq("power", "--gap", 0.01).out
    assert nlq("noise").code == 0
    assert len(Reader(tmp_path / "runs.db").noises()) == 1
    assert nlq("sweep", write_spec(SINGLE)).code == 0
    (row,) = _rows(nlq)
    assert (round(row["z"] * kept.sigma_nats * 2**0.5, 9), row["p_value"]) == (round(row["delta_nats"], 9), None)
    assert "5 seeds of baseline in seeds" in nlq("report", "--why", "nonlinear-q").out.replace("\n", " ")


LENGTHS = """
name: lengths
arms:
  baseline: {train.steps: 8}
  half: {train.steps: 4}
  twice: {train.steps: 16}
  nonlinear-q: {model.variant: nonlinear_q, train.steps: 8}
seeds: [0, 1]
"""


def test_tokens_flops_and_time_of_real_runs(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    assert nlq("sweep", write_spec(LENGTHS)).code == 0
    table = json.loads(nlq("report", "--equivalents", "--json").out)
    (row,) = table["rows"]
    assert len(table["lengths"]) == 3
    assert "before its learning rate has decayed" in row["lack"]
    for name in ("tokens", "flops", "seconds"):
        assert row[f"{name}_ratio"] > 0
        assert row[f"{name}_ratio_interval"][0] <= row[f"{name}_ratio_interval"][1]
    (text,) = {m.run.train_tokens for m in Reader(tmp_path / "runs.db").sweep("lengths").members}
    assert text > 1000
    assert "tokens unique" in nlq("report", "--why", "nonlinear-q").out


def test_what_cannot_be_confirmed(nlq: Run, write_spec: Run) -> None:
    assert nlq("confirm").code == 2
    one_point = TUNED.replace("grid: {optim.lr_max: [1e-3, 3e-3]}\n", "")
    assert nlq("sweep", write_spec(one_point)).code == 0
    assert "every seed is fresh already" in nlq("confirm").err


def test_options_that_belong_to_other_tables(nlq: Run) -> None:
    for words in (["--evidence", "--all"], ["--table1", "--sigma", 0.1], ["--evidence", "--why", "x"], ["--why", "x"]):
        assert nlq("report", *words).code == 2
