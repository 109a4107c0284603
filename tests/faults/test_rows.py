"""The faults that users of sibling tools have reported: each row of the list is impossible here."""

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from nlq.core.run import State
from nlq.store.reader import Reader

LONG = """{
  data: {corpus: text, path: corpus.txt},
  model: {layers: 1, heads: 2, width: 16, context: 16},
  optim: {warmup_steps: 2},
  train: {steps: 200000, batch_tokens: 64, eval_every: 40000, eval_windows: 8, checkpoint_steps: 50}}"""
BASE = LONG.replace("200000", "100").replace("40000", "25")


def curves(db: Path) -> pd.DataFrame:
    reader = Reader(db)
    return reader.steps([run.run_id for run in reader.runs()]).drop(columns="step_ms")


def states(db: Path) -> list[State]:
    return [run.state for run in Reader(db).runs()]


def test_4_the_same_sweep_started_twice_at_once_trains_each_run_once(
    field: Any, write_spec: Callable[..., Path]
) -> None:
    spec = write_spec("name: s\narms: {a: {}}\ngrid: {optim.lr_max: [1e-3, 0.001, 2e-3]}", base=BASE)
    both = [field.start("sweep", spec, "--slots", 1) for _ in range(2)]
    assert [one.wait(timeout=240) for one in both] == [0, 0]
    assert states(field.db) == [State.COMPLETED] * 2
    reader = Reader(field.db)
    assert [len(reader.attempts(run.run_id)) for run in reader.runs()] == [1] * 2


def test_5_and_10_exactly_what_failed_runs_again(field: Any, write_spec: Callable[..., Path]) -> None:
    spec = write_spec("name: s\narms: {a: {}}\nseeds: [0, 1, 2]", base=BASE)
    field.plant("raise RuntimeError('planted')", step=0, when="run.spec.seed in (0, 2)")
    first = field.run("sweep", spec)
    assert first.returncode == 1
    assert "2 runs failed" in first.stdout
    assert first.stdout.count("RuntimeError: planted") == 2
    assert states(field.db) == [State.FAILED, State.COMPLETED, State.FAILED]
    field.heal()
    again = field.run("sweep", spec)
    assert again.returncode == 0
    assert "2 to train" in again.stdout
    reader = Reader(field.db)
    assert [len(reader.attempts(run.run_id)) for run in reader.runs()] == [2, 1, 2]


@pytest.mark.parametrize(
    ("fault", "state", "kind", "message"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", State.FAILED, "killed", "signal 9"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", State.FAILED, "killed", "signal 11"),
        ("os._exit(0)", State.FAILED, "killed", "code 0 before its last step"),
        ("sys.exit(0)", State.FAILED, "killed", "code 0 before its last step"),
        ("raise ValueError('a fault of its own')", State.FAILED, "code_error", "ValueError: a fault of its own"),
        ("raise MemoryError()", State.FAILED, "out_of_memory", "micro-batches"),
        ("raise OSError(28, 'No space left on device')", State.FAILED, "no_space", "No space left"),
        ("raise RuntimeError('CUDA error: an illegal memory access')", State.FAILED, "device_error", "CUDA error"),
        ("run.engine.model.norm.weight.data.fill_(float('nan'))", State.DIVERGED, None, None),
    ],
)
def test_6_every_end_has_its_own_true_state(
    field: Any, write_spec: Callable[..., Path], fault: str, state: State, kind: str | None, message: str | None
) -> None:
    field.plant(fault, step=7)
    done = field.run("sweep", write_spec("arms: {a: {}}", base=BASE.replace("steps: 100,", "steps: 20,")))
    (run,) = Reader(field.db).runs()
    assert (run.state, run.failure_class) == (state, kind)
    assert done.returncode == (0 if state is State.DIVERGED else 1)
    if message:
        assert message in (run.failure_message or "") or message in str(Reader(field.db).events(run.run_id))
    if kind == "code_error":
        assert "Traceback" in Path(run.log_path or "").read_text()
    assert field.workers() == []


def test_9_out_of_memory_is_tried_once_more_with_half_the_micro_batch(
    field: Any, write_spec: Callable[..., Path]
) -> None:
    field.plant("raise MemoryError()", step=7, when="(run.spec.train.micro_batch or 4) > 2")
    assert field.run("sweep", write_spec("arms: {a: {}}", base=BASE)).returncode == 0
    reader = Reader(field.db)
    (run,) = reader.runs()
    assert run.state is State.COMPLETED
    assert [a["ended"] for a in reader.attempts(run.run_id)] == ["failed", "completed"]
    assert any("once more with micro-batches of 2" in e["message"] for e in reader.events(run.run_id))


def test_11_killed_at_77_and_resumed_from_50(field: Any, write_spec: Callable[..., Path]) -> None:
    spec = write_spec("arms: {a: {model.variant: nonlinear_q}}", base=BASE)
    assert field.run("sweep", spec, "--db", "quiet.db", "--slots", 2).returncode == 0
    once = "not os.path.exists('killed') and (open('killed', 'w').close(), run.sink.flush())"
    field.plant("os.kill(os.getpid(), signal.SIGKILL)", step=77, when=once)
    assert field.run("sweep", spec, "--slots", 2).returncode == 0
    reader = Reader(field.db)
    (run,) = reader.runs()
    assert [a["resumed_step"] for a in reader.attempts(run.run_id)] == [0, 50]
    by_attempt = reader.db.execute("SELECT attempt, min(step), max(step) FROM steps GROUP BY attempt ORDER BY attempt")
    assert [row[1:] for row in by_attempt] == [(0, 49), (50, 99)]
    pd.testing.assert_frame_equal(curves(field.db), curves(field.folder / "quiet.db"), check_exact=True)
    quiet = Reader(field.folder / "quiet.db")
    assert [tuple(e) for e in reader.evals([run.run_id])[run.run_id]] == [
        tuple(e) for e in quiet.evals([run.run_id])[run.run_id]
    ]


def test_12_the_first_interrupt_saves_and_gives_back(field: Any, write_spec: Callable[..., Path]) -> None:
    spec = write_spec("name: s\narms: {a: {}}\nseeds: [0, 1, 2]", base=LONG)
    sweep = field.start("sweep", spec)
    field.wait(lambda: field.steps_done() > 20)
    sweep.send_signal(signal.SIGINT)
    assert sweep.wait(timeout=60) == 130
    assert states(field.db) == [State.QUEUED] * 3
    reader = Reader(field.db)
    ended = [reader.attempts(run.run_id)[0] for run in reader.runs()[:2]]
    assert all("with a checkpoint at step" in str(reader.events(run.run_id)) for run in reader.runs()[:2])
    assert [attempt["ended"] for attempt in ended] == ["cancelled", "cancelled"]
    assert field.workers() == []


def test_12_the_second_interrupt_ends_at_once(field: Any, write_spec: Callable[..., Path]) -> None:
    field.plant("signal.signal(signal.SIGTERM, signal.SIG_IGN)", step=3)
    sweep = field.start("sweep", write_spec("arms: {a: {}}", base=LONG))
    field.wait(lambda: field.steps_done() > 20)
    sweep.send_signal(signal.SIGINT)
    time.sleep(1)  # as a person would: two signals at once are one
    sweep.send_signal(signal.SIGINT)
    assert sweep.wait(timeout=60) == 130
    assert states(field.db) == [State.QUEUED]
    assert field.workers() == []


def test_killing_the_scheduler_does_not_kill_training_and_a_new_one_adopts_it(
    field: Any, write_spec: Callable[..., Path]
) -> None:
    spec = write_spec("arms: {a: {}}", base=LONG.replace("200000", "5000"))
    sweep = field.start("sweep", spec)
    field.wait(lambda: field.steps_done() > 20)
    (worker,) = field.workers()
    sweep.kill()
    sweep.wait()
    assert field.workers() == [worker]
    assert field.run("sweep", spec).returncode == 0
    reader = Reader(field.db)
    (run,) = reader.runs()
    assert run.state is State.COMPLETED
    assert len(reader.attempts(run.run_id)) == 1


def test_a_loop_that_hangs_does_not_look_alive(field: Any, write_spec: Callable[..., Path]) -> None:
    once = "not os.path.exists('hung') and (open('hung', 'w').close() or True)"
    field.plant("os.kill(os.getpid(), signal.SIGSTOP)", step=60, when=once)
    assert field.run("sweep", write_spec("arms: {a: {}}", base=BASE), "--stall-timeout", 8).returncode == 0
    reader = Reader(field.db)
    (run,) = reader.runs()
    assert [a["ended"] for a in reader.attempts(run.run_id)][1:] == ["completed"]
    assert any("no step for 8 s" in e["message"] for e in reader.events(run.run_id))


def test_14_code_that_changed_after_queueing_is_said_or_refused(field: Any, write_spec: Callable[..., Path]) -> None:
    spec = write_spec("name: s\narms: {a: {}, b: {model.layers: 2}}", base=BASE)
    field.plant("raise RuntimeError('planted')", step=0)
    field.run("sweep", spec)
    field.heal()
    with sqlite3.connect(field.db) as db:
        db.execute("UPDATE runs SET state = 'queued', queued_source_sha256 = 'other code'")
    db.close()
    spec.write_text("arms: {}")
    refused = field.run("work", "--strict")
    assert refused.returncode == 1
    assert all("source has changed" in (run.failure_message or "") for run in Reader(field.db).runs())
    with sqlite3.connect(field.db) as db:
        db.execute("UPDATE runs SET state = 'queued'")
    db.close()
    assert field.run("work").returncode == 0
    reader = Reader(field.db)
    assert states(field.db) == [State.COMPLETED] * 2
    assert [r.spec["model"]["layers"] for r in reader.runs()] == [1, 2], "what was queued, not what the file says now"
    assert any("source has changed" in e["message"] for e in reader.events(reader.runs()[0].run_id))


def test_17_a_spec_elsewhere_with_relative_paths_and_two_starts_at_once(
    field: Any, write_spec: Callable[..., Path]
) -> None:
    folder = field.folder / "elsewhere"
    folder.mkdir()
    spec = write_spec("arms: {a: {}}\nseeds: [0, 1]", base=BASE)
    spec.rename(folder / "spec.yaml")
    (field.folder / "corpus.txt").rename(folder / "corpus.txt")
    assert field.run("sweep", "elsewhere/spec.yaml").returncode == 0
    logs = [run.log_path for run in Reader(field.db).runs()]
    assert len(set(logs)) == 2
    assert all(os.path.isfile(log or "") for log in logs)  # noqa: PTH113


def test_18_status_and_report_never_scan_the_steps(nlq: Callable[..., Any], write_spec: Callable[..., Path]) -> None:
    """At 200 runs of 10,000 steps that table is everything; what is asked for often must not touch it."""
    nlq("sweep", write_spec("name: s\narms: {a: {}, b: {model.layers: 2}}\nseeds: [0, 1]"), "--runner", "inline")
    asked: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        real = sqlite3.connect

        def watched(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection = real(*arguments, **options)
            connection.set_trace_callback(asked.append)
            return connection

        patch.setattr("nlq.store.database.sqlite3.connect", watched)
        for command in (["status"], ["status", "--json"], ["report", "--table1"], ["report", "--table1", "--all"]):
            assert nlq(*command).code == 0
    assert any("FROM runs" in sql for sql in asked)
    assert not [sql for sql in asked if "FROM steps" in sql or "window_losses" in sql]
