"""A run on two devices: the same curve as on one, resumed after a fault of either process, and nothing left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest

from nlq.core.run import State
from nlq.store.reader import Reader

BASE = """{
  data: {corpus: text, path: corpus.txt},
  model: {layers: 1, heads: 2, width: 16, context: 16},
  optim: {warmup_steps: 2},
  train: {devices: 2, steps: 40, batch_tokens: 64, eval_every: 20, eval_windows: 8, checkpoint_steps: 10}}"""
LONG = BASE.replace("steps: 40", "steps: 200000").replace("eval_every: 20", "eval_every: 100000")

PLANT = """
import os, signal, sys
if "--rank" in sys.orig_argv:
    from nlq.training.engine import Engine
    real = Engine.update

    def update(self, batch, step):
        if step == 27 and {when}:
            {fault}
        return real(self, batch, step)

    Engine.update = update
"""
ONCE = "not os.path.exists('done') and (open('done', 'w').close() or True)"


def plant(field: Any, fault: str, when: str = "True") -> None:
    """Make every further rank do something before step 27."""
    folder = field.folder / "plant"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(PLANT.format(fault=fault, when=when))
    field.environment["PYTHONPATH"] = f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"


def curves(db: Path) -> pd.DataFrame:
    reader = Reader(db)
    return reader.steps([run.run_id for run in reader.runs()]).drop(columns="step_ms")


def hashes(db: Path) -> list[str]:
    reader = Reader(db)
    return [
        point.data_hash for points in reader.evals([run.run_id for run in reader.runs()]).values() for point in points
    ]


def ranks_of(field: Any) -> list[psutil.Process]:
    """The processes of further devices, as children of the workers that train now."""
    return [child for pid in field.workers() for child in psutil.Process(pid).children() if "--rank" in child.cmdline()]


def has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("manner", ["devices: 2, ", "devices: 2, sharded: true, "])
def test_the_curve_of_one_device_also_when_a_rank_is_killed(
    field: Any, write_spec: Callable[..., Path], manner: str
) -> None:
    spec = write_spec("arms: {a: {}}", base=BASE.replace("devices: 2, ", manner))
    alone = write_spec("arms: {a: {}}", "alone.yaml", base=BASE.replace("devices: 2, ", ""))
    assert field.run("sweep", alone, "--slots", 2, "--db", "alone.db").returncode == 0
    assert field.run("sweep", spec, "--slots", 2, "--db", "quiet.db").returncode == 0
    one, two = (curves(field.folder / name) for name in ("alone.db", "quiet.db"))
    np.testing.assert_allclose(two.drop(columns="run_id"), one.drop(columns="run_id"), rtol=1e-5)
    assert list(two["run_id"]) == list(one["run_id"]), "an execution setting is no part of a run's identity"
    assert hashes(field.folder / "alone.db") == hashes(field.folder / "quiet.db")

    plant(field, "os.kill(os.getpid(), signal.SIGKILL)", ONCE)
    assert field.run("sweep", spec, "--slots", 2).returncode == 0
    reader = Reader(field.db)
    (run,) = reader.runs()
    attempts = reader.attempts(run.run_id)
    assert [(a["ended"], a["resumed_step"], a["slot"]) for a in attempts] == [
        ("lost", 0, "cpu:0+cpu:1"),
        ("completed", 20, "cpu:0+cpu:1"),
    ]
    assert any("rank 1 of 2 was killed by SIGKILL" in event["message"] for event in reader.events(run.run_id))
    pd.testing.assert_frame_equal(curves(field.db), two, check_exact=True)


def test_out_of_memory_on_one_device_halves_what_each_has(field: Any, write_spec: Callable[..., Path]) -> None:
    plant(field, "raise MemoryError()", "(self.spec.train.micro_batch or 2) > 1")
    assert field.run("sweep", write_spec("arms: {a: {}}", base=BASE), "--slots", 2).returncode == 0
    reader = Reader(field.db)
    (run,) = reader.runs()
    assert [a["ended"] for a in reader.attempts(run.run_id)] == ["failed", "completed"]
    assert any("once more with micro-batches of 1" in event["message"] for event in reader.events(run.run_id))


def test_a_fault_of_the_code_on_one_device_is_no_loss(field: Any, write_spec: Callable[..., Path]) -> None:
    plant(field, "raise ValueError('a fault of its own')")
    assert field.run("sweep", write_spec("arms: {a: {}}", base=BASE), "--slots", 2).returncode == 1
    reader = Reader(field.db)
    (run,) = reader.runs()
    assert (run.state, run.failure_class) == (State.FAILED, "code_error")
    assert len(reader.attempts(run.run_id)) == 1
    assert "a fault of its own" in Path(run.log_path or "").read_text()


def test_an_interrupted_run_goes_on_and_ends_with_all_its_processes(
    field: Any, write_spec: Callable[..., Path]
) -> None:
    sweep = field.start("sweep", write_spec("arms: {a: {}}", base=LONG), "--slots", 2)
    field.wait(lambda: field.steps_done() > 20)
    (rank,) = ranks_of(field)
    sweep.send_signal(signal.SIGINT)
    assert sweep.wait(timeout=60) == 130
    (run,) = Reader(field.db).runs()
    assert run.state is State.QUEUED
    assert any("with a checkpoint at step" in event["message"] for event in Reader(field.db).events(run.run_id))
    assert has_ended(rank)
    left = field.run("work", "--slots", 1)
    assert left.returncode == 0
    assert "1 run of them left alone" in left.stdout

    scheduler = field.start("work", "--slots", 2)
    field.wait(lambda: field.steps_done() > run.steps_done + 20 and field.workers())
    (worker,), (rank,) = field.workers(), ranks_of(field)
    scheduler.kill()
    scheduler.wait()
    os.kill(worker, signal.SIGKILL)
    field.wait(lambda: has_ended(rank), most_s=20)
    assert Reader(field.db).attempts(run.run_id)[1]["resumed_step"] == run.steps_done


WAITS_FOR_EVER = """
import sys, time
import nlq.runners._ranks as ranks
ranks.PATIENCE_S = 0.1
found = ranks.Ranks(2, [], "", lambda error: print(error.kind, error.message, flush=True) or 7)
found.start(1)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("sys.exit(12)", "out_of_memory rank 1 of 2 ended with code 12"),
        ("os.kill(os.getpid(), 9)", "killed rank 1 of 2 was killed by SIGKILL"),
        ("os.kill(os.getppid(), 9), time.sleep(600)", None),
    ],
)
def test_a_worker_that_waits_for_a_rank_that_is_gone_ends(tmp_path: Path, end: str, told: str | None) -> None:
    """As on GPUs, where nothing tells the waiting thread; and a rank whose worker is gone ends too."""
    import nlq

    code = f"import os, sys, time\nfrom nlq.runners._ranks import end_with\nend_with(int(sys.argv[-1]))\n{end}"
    (tmp_path / "nlq").mkdir()
    package = Path(nlq.__file__).parent
    (tmp_path / "nlq" / "__init__.py").write_text(f"__path__.append({str(package)!r})")
    (tmp_path / "nlq" / "worker.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-c", WAITS_FOR_EVER],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == (7 if told else -signal.SIGKILL)
    assert (told or "") in done.stdout
