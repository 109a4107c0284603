"""The queue and the rows, on a database of their own."""

import itertools
import math
import sqlite3
import threading
from pathlib import Path

import numpy as np
import pytest

from nlq.core.document import parse
from nlq.core.errors import NlqError
from nlq.core.launch import Process
from nlq.core.run import CodeState, EvalRow, Provenance, State, StepRow, WindowLosses
from nlq.core.spec import defaults_resolved
from nlq.core.sweep import Sweep, expand
from nlq.store.database import open_writable
from nlq.store.queue import MOST_LOSSES, Claim, Counts, Queue
from nlq.store.reader import Reader
from nlq.store.writer import RunWriter, StaleAttemptError

SCHEDULER = Process("host", "boot", 1, "10")
WORKER = Process("host", "boot", 2, "20")
CODE = CodeState("digest", "abc", False)
SLOTS = itertools.count()
PROVENANCE = Provenance("host", "cpu", 1, "0.1.0", "2.13", "3.11", "abc", False)


def sweep_of(text: str = "{name: s, arms: {a: {}, b: {model.layers: 2, label: 'β ⭐'}}, seeds: [0, 1]}") -> Sweep:
    return expand(parse(text, "s.yaml", Path()), defaults_resolved)


def counts_of(sweep: Sweep) -> dict[str, Counts]:
    return {run.key: Counts(10, 20, 30) for run in sweep.runs}


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def queue(db: Path) -> Queue:
    queue = Queue(db)
    sweep = sweep_of()
    assert queue.enqueue(sweep, counts_of(sweep), CODE) == 4
    return queue


def claim(queue: Queue, sweep: str = "s") -> Claim:
    claimed = queue.claim(sweep, SCHEDULER, f"cpu:{next(SLOTS)}", Path("logs"))
    assert claimed is not None
    return claimed


def windows(*sums: float) -> WindowLosses:
    ones = np.ones(len(sums), dtype=np.int64)
    return WindowLosses(np.array(sums), ones, np.arange(len(sums)), np.array(sums), ones)


def test_a_run_goes_through_its_states(db: Path, queue: Queue) -> None:
    one = claim(queue)
    queue.launched(one.attempt, WORKER)
    queue.started(one.attempt, PROVENANCE)
    assert queue.open_attempts()[0].worker == WORKER
    writer = RunWriter(db, one.attempt, tokens_per_step=100)
    writer.step(StepRow(0, 3.5, 1.0, 1e-3, 10.0))
    writer.evaluation(EvalRow(0, "select", 3.4, 2, 5.0, "hash", "w", windows(3.0, 3.8)))
    writer.close("hash", 1000)
    assert queue.finish(one.attempt, State.COMPLETED, exit_code=0)
    run = Reader(db).run(one.run_id)
    assert (run.state, run.steps_done, run.last_loss_nats, run.tokens_per_s) == (State.COMPLETED, 1, 3.5, 10_000)
    assert run.provenance == PROVENANCE
    assert (run.non_embedding_params, run.total_params, run.flops_per_token) == (10, 20, 30)
    kept = Reader(db).windows(one.run_id, 0, "select")
    assert kept is not None
    for got, put in zip(kept, windows(3.0, 3.8), strict=True):
        np.testing.assert_array_equal(got, put)
    assert queue.open_attempts() == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan"), np.float64("-inf")])
def test_numbers_that_are_not_finite_are_read_back_as_such(db: Path, queue: Queue, value: float) -> None:
    one = claim(queue)
    writer = RunWriter(db, one.attempt, 1)
    writer.step(StepRow(0, float(value), float(value), 1e-3, 1.0))
    writer.evaluation(EvalRow(0, "select", float(value), 1, 1.0, "", "w", windows(1.0)))
    writer.close("", None)
    steps = Reader(db).steps([one.run_id])
    np.testing.assert_array_equal(steps[["loss_nats", "grad_norm"]].to_numpy(), [[value, value]])
    np.testing.assert_array_equal(Reader(db).evals([one.run_id])[one.run_id][0].loss_nats, value)


def test_what_is_queued_running_or_finished_is_not_queued_twice(queue: Queue) -> None:
    sweep = sweep_of()
    done, running = claim(queue), claim(queue)
    queue.finish(done.attempt, State.COMPLETED)
    assert queue.enqueue(sweep, counts_of(sweep), CODE) == 0
    queue.finish(running.attempt, State.FAILED, failure_class="code_error")
    assert queue.enqueue(sweep, counts_of(sweep), CODE) == 1
    assert queue.states("s") == {State.COMPLETED: 1, State.QUEUED: 3}


def test_two_sweeps_share_a_run(db: Path, queue: Queue) -> None:
    other = sweep_of("{name: t, arms: {c: {model.layers: 2}}, seeds: [1, 2]}")
    assert queue.enqueue(other, counts_of(other), CODE) == 1
    shared = {m.run.run_id for m in Reader(db).sweep("s").members} & {
        m.run.run_id for m in Reader(db).sweep("t").members
    }
    assert len(shared) == 1
    assert Reader(db).sweep_names() == ["t", "s"]


def test_a_sweep_of_the_same_name_is_replaced_and_its_runs_are_kept(db: Path, queue: Queue) -> None:
    smaller = sweep_of("{name: s, arms: {a: {}}, seeds: [0]}")
    assert queue.enqueue(smaller, counts_of(smaller), CODE) == 0
    assert [m.arm for m in Reader(db).sweep("s").members] == ["a"]
    assert len(Reader(db).runs()) == 4


def test_rows_of_a_former_attempt_are_refused(db: Path, queue: Queue) -> None:
    first = claim(queue)
    late = RunWriter(db, first.attempt, 1)
    queue.lose(first.attempt, "gone")
    again = claim(queue)
    assert again.run_id == first.run_id
    late.step(StepRow(0, 1.0, 1.0, 1.0, 1.0))
    with pytest.raises(StaleAttemptError):
        late.flush()
    assert Reader(db).steps([first.run_id]).empty
    assert not queue.finish(first.attempt, State.COMPLETED)
    assert Reader(db).run(first.run_id).state is State.RUNNING


def test_a_new_attempt_replaces_the_rows_from_where_it_begins(db: Path, queue: Queue) -> None:
    first = claim(queue)
    writer = RunWriter(db, first.attempt, 1)
    for step in range(5):
        writer.step(StepRow(step, 1.0, 1.0, 1.0, 1.0))
    writer.evaluation(EvalRow(0, "select", 1.0, 1, 1.0, "", "w", windows(1.0)))
    writer.evaluation(EvalRow(4, "select", 1.0, 1, 1.0, "", "w", windows(1.0)))
    writer.flush()
    queue.lose(first.attempt, "gone")
    again = claim(queue)
    assert queue.rows_reach(again.attempt, 3, [0, 4])
    assert not queue.rows_reach(again.attempt, 5, [0, 2, 4])
    assert not queue.rows_reach(again.attempt, 6, [0, 4])
    queue.begin(first.attempt, 0)
    assert len(Reader(db).steps([first.run_id])) == 5, "a former attempt deletes nothing"
    queue.begin(again.attempt, 3)
    assert list(Reader(db).steps([first.run_id])["step"]) == [0, 1, 2]
    assert [e.step for e in Reader(db).evals([first.run_id])[first.run_id]] == [0]
    assert Reader(db).windows(first.run_id, 4, "select") is None


def test_a_run_is_lost_a_bounded_number_of_times(db: Path, queue: Queue) -> None:
    ids = set()
    for _ in range(MOST_LOSSES):
        one = claim(queue)
        ids.add(one.run_id)
        queue.lose(one.attempt, "killed by signal 9", exit_code=-9)
        assert Reader(db).run(one.run_id).state is State.QUEUED
    one = claim(queue)
    queue.lose(one.attempt, "killed by signal 9", exit_code=-9)
    assert len(ids | {one.run_id}) == 1
    run = Reader(db).run(one.run_id)
    assert (run.state, run.failure_class, run.failure_message) == (State.FAILED, "killed", "killed by signal 9")


def test_giving_back_is_not_held_against_a_run(queue: Queue) -> None:
    for _ in range(MOST_LOSSES + 2):
        queue.give_back(claim(queue).attempt, "interrupted")
    assert queue.states("s") == {State.QUEUED: 4}


def test_eight_threads_claim_each_run_once(db: Path) -> None:
    queue = Queue(db)
    sweep = sweep_of("{name: s, arms: {a: {}}, seeds: [" + ",".join(map(str, range(60))) + "]}")
    queue.enqueue(sweep, counts_of(sweep), CODE)
    claimed: list[str] = []

    def take() -> None:
        own = Queue(db)
        while (one := own.claim("s", SCHEDULER, f"{next(SLOTS)}", Path("logs"))) is not None:
            claimed.append(one.run_id)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == len(set(claimed)) == 60


def test_a_slot_takes_one_run_whoever_asks(db: Path, queue: Queue) -> None:
    other = Queue(db)
    one = queue.claim("s", SCHEDULER, "cpu:0", Path("logs"))
    assert one
    assert other.claim("s", Process("host", "boot", 9, "9"), "cpu:0", Path("logs")) is None
    assert other.claim("s", Process("elsewhere", "boot", 9, "9"), "cpu:0", Path("logs"))
    queue.finish(one.attempt, State.COMPLETED)
    assert other.claim("s", Process("host", "boot", 9, "9"), "cpu:0", Path("logs"))


def test_a_closed_database_is_one_whole_file(db: Path, queue: Queue, tmp_path: Path) -> None:
    claim(queue)
    queue.close()
    copied = tmp_path / "copy.db"
    copied.write_bytes(db.read_bytes())
    assert [run.state for run in Reader(copied).runs()].count(State.RUNNING) == 1


def test_an_empty_database_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty.db").write_bytes(b"")
    with pytest.raises(NlqError, match="holds no sweep yet"):
        Reader(tmp_path / "empty.db")


def test_a_run_is_found_by_the_start_of_its_id(db: Path, queue: Queue) -> None:
    one = claim(queue)
    assert Reader(db).run(one.run_id[:6]).run_id == one.run_id
    with pytest.raises(NlqError, match="start of several"):
        Reader(db).run("")
    with pytest.raises(NlqError, match="no run"):
        Reader(db).run("zzz")


def test_reading_changes_no_byte(db: Path, queue: Queue) -> None:
    claim(queue)
    queue.close()
    before = db.read_bytes()
    reader = Reader(db)
    reader.sweep()
    reader.runs()
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.db.execute("DELETE FROM runs")
    reader.db.close()
    assert db.read_bytes() == before


def test_a_newer_database_is_refused(db: Path, queue: Queue) -> None:
    queue.db["_sqlite_migrations"].insert({"migration_set": "nlq", "name": "9999_future", "applied_at": ""})
    queue.close()
    for opening in (Reader, Queue):
        with pytest.raises(NlqError, match="newer nlq"):
            opening(db)


def test_what_is_no_database_of_nlq_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.db"
    text.write_text("not a database, but long enough to have had a header " * 10)
    foreign = tmp_path / "foreign.db"
    sqlite3.connect(foreign).execute("CREATE TABLE t (x)").connection.close()
    for path, why in ((text, "not a database"), (foreign, "not one of nlq's"), (tmp_path, "database")):
        for opening in (Reader, Queue):
            with pytest.raises(NlqError, match=why):
                opening(path)
    assert "not a database" in text.read_text()


def test_missing_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(NlqError, match="no such database"):
        Reader(tmp_path / "runs.db")
    with pytest.raises(NlqError, match="no such folder"):
        open_writable(tmp_path / "nowhere" / "runs.db")
    assert list(tmp_path.iterdir()) == []


def test_tables_are_strict_and_steps_have_no_rowid(queue: Queue) -> None:
    schemas = dict(queue.db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall())
    ours = {n: sql for n, sql in schemas.items() if not n.startswith(("_", "sqlite_"))}
    assert len(ours) == 10
    assert all("STRICT" in sql for sql in ours.values())
    assert "WITHOUT ROWID" in ours["steps"]
    assert queue.db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.fixture
def of_two_devices(db: Path) -> Queue:
    """Three runs: of one device, of two, and of one."""
    queue = Queue(db)
    sweep = sweep_of("{name: d, arms: {a: {}, b: {train.devices: 2, model.layers: 2}, c: {model.layers: 3}}}")
    queue.enqueue(sweep, counts_of(sweep), CODE)
    return queue


def test_a_run_of_two_devices_takes_two_slots_that_nobody_is_in(of_two_devices: Queue) -> None:
    def claim(slots: str, most: int = 3) -> str | None:
        got = of_two_devices.claim("d", SCHEDULER, slots, Path("logs"), most)
        return None if got is None else got.slot

    assert claim("cpu:0+cpu:1") == "cpu:0"
    assert claim("cpu:0+cpu:1") is None, "the next needs two"
    assert claim("cpu:0+cpu:1+cpu:2+cpu:3") == "cpu:1+cpu:2"
    assert claim("cpu:2") is None
    assert claim("cpu:1+cpu:3") == "cpu:3"
    assert claim("cpu:4") is None


def test_a_run_of_more_devices_than_there_are_is_passed_over(of_two_devices: Queue) -> None:
    assert (of_two_devices.queued_beyond("d", 1), of_two_devices.queued_beyond(None, 2)) == (1, 0)
    assert of_two_devices.claim("d", SCHEDULER, "cpu:0", Path("logs"))
    assert of_two_devices.claim("d", SCHEDULER, "cpu:1", Path("logs"))
    assert of_two_devices.claim("d", SCHEDULER, "cpu:2", Path("logs")) is None
    assert of_two_devices.states("d") == {State.RUNNING: 2, State.QUEUED: 1}


def test_the_devices_of_a_queued_run_are_those_of_the_latest_spec(of_two_devices: Queue) -> None:
    again = sweep_of("{name: e, arms: {a: {train.devices: 2}, b: {model.layers: 2}}}")
    assert of_two_devices.enqueue(again, counts_of(again), CODE) == 0
    assert of_two_devices.queued_beyond("d", 1) == 1
    claimed = of_two_devices.claim("d", SCHEDULER, "cpu:0+cpu:1", Path("logs"), 2)
    assert claimed is not None
    assert (claimed.run_id, claimed.slot) == (again.runs[0].key[:12], "cpu:0+cpu:1")


def test_a_runs_energy_is_that_of_all_attempts_that_trained(queue: Queue, db: Path) -> None:
    for attempt_joules, run_joules in ((5.0, 5.0), (7.0, 12.0), (None, None)):
        claimed = claim(queue)
        queue.begin(claimed.attempt, 0)
        queue.used(claimed.attempt, attempt_joules)
        assert Reader(db).run(claimed.run_id).energy_joules == run_joules
        queue.give_back(claimed.attempt, "interrupted")


def test_an_attempt_that_never_trained_used_nothing_that_counts(queue: Queue, db: Path) -> None:
    first = claim(queue)
    queue.give_back(first.attempt, "interrupted")
    second = claim(queue)
    assert second.run_id == first.run_id
    queue.begin(second.attempt, 0)
    queue.used(second.attempt, 3.0)
    assert Reader(db).run(second.run_id).energy_joules == 3.0
