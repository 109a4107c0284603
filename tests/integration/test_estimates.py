"""What a dry run foretells against what runs then record: memory, and how two shapes compare in time.

Both come from the same machine within seconds, in processes of one thread, and times are compared as ratios alone, so
that neighbours do not matter.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nlq.core.run import RunRecord
from nlq.store.reader import Reader

SPEC = """
name: s
baseline: narrow
base:
  data: {corpus: text, path: t.txt}
  model: {layers: 2, heads: 4, width: 32, context: 64}
  optim: {warmup_steps: 2}
  train: {steps: 8, batch_tokens: 4096, eval_every: 8, eval_windows: 16}
arms: {narrow: {}, wide: {model.width: 256}}
"""

Foretold = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Foretold, dict[str, RunRecord], Reader]:
    """The dry run's rows, the runs and the database, by arm. In processes of their own: memory counts."""
    folder = tmp_path_factory.mktemp("estimates")
    (folder / "t.txt").write_text("some words of text\n" * 4000)
    (folder / "s.yaml").write_text(SPEC)
    rows = json.loads(_nlq(folder, "sweep", "s.yaml", "--dry-run", "--json"))["runs"]
    _nlq(folder, "sweep", "s.yaml")
    reader = Reader(folder / "runs.db")
    return {row["arm"]: row for row in rows}, {m.arm: m.run for m in reader.sweep().members}, reader


def _nlq(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "nlq", *arguments, "--gpus", "none"]
    environment = {**os.environ, "NLQ_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("arm", ["narrow", "wide"])
def test_memory(sweep: tuple[Foretold, dict[str, RunRecord], Reader], arm: str) -> None:
    foretold, runs, reader = sweep
    (attempt,) = reader.attempts(runs[arm].run_id)
    assert 0.6 < foretold[arm]["memory_bytes"] / attempt["peak_memory_bytes"] < 1.6


def test_time_of_one_shape_beside_another(sweep: tuple[Foretold, dict[str, RunRecord], Reader]) -> None:
    foretold, runs, reader = sweep
    steps_s = {arm: row["estimated_s"] * (1 - row["estimated_eval_share"]) for arm, row in foretold.items()}
    taken_ms = {arm: statistics.median(reader.times(run.run_id)[0]) for arm, run in runs.items()}
    assert 0.4 < (steps_s["wide"] / steps_s["narrow"]) / (taken_ms["wide"] / taken_ms["narrow"]) < 2.5
