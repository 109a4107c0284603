"""The queue against a model of it: any order of claims, rows, ends, losses, cancellations and late writes, from
several connections."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from nlq.core.document import parse
from nlq.core.launch import Process
from nlq.core.run import CodeState, State, StepRow
from nlq.core.spec import defaults_resolved
from nlq.core.sweep import expand
from nlq.store.queue import MOST_LOSSES, Claim, Counts, Queue
from nlq.store.reader import Reader
from nlq.store.writer import RunWriter, StaleAttemptError

RUNS, CONNECTIONS = 4, 3
connection = st.integers(0, CONNECTIONS - 1)
picked = st.integers(0, 10**6)


@dataclass
class Modelled:
    """What one run should be."""

    state: State = State.QUEUED
    current: int | None = None
    losses: int = 0
    rows: set[int] = field(default_factory=set)


class QueueMachine(RuleBasedStateMachine):
    """Every rule does one thing to the database and to the model; the invariant compares them."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.db = Path(self.folder.name) / "runs.db"
        self.queues = [Queue(self.db) for _ in range(CONNECTIONS)]
        seeds = ", ".join(map(str, range(RUNS)))
        self.sweep = expand(parse(f"{{name: s, arms: {{a: {{}}}}, seeds: [{seeds}]}}", "s", Path()), defaults_resolved)
        self.counts = {run.key: Counts(1, 1, 1) for run in self.sweep.runs}
        self.runs = {run.key[:12]: Modelled() for run in self.sweep.runs}
        self.claims: list[Claim] = []
        self.enqueue(0)

    def teardown(self) -> None:
        if hasattr(self, "queues"):
            for queue in self.queues:
                queue.close()
            self.folder.cleanup()

    @rule(at=connection)
    def enqueue(self, at: int) -> None:
        self.queues[at].enqueue(self.sweep, self.counts, CodeState("", None, None))
        for run in self.runs.values():
            if run.state in (State.FAILED, State.CANCELLED):
                run.state, run.losses = State.QUEUED, 0

    @rule(at=connection)
    def claim(self, at: int) -> None:
        got = self.queues[at].claim("s", Process("h", "b", at, "1"), f"slot {len(self.claims)}", Path("logs"))
        waiting = [run_id for run_id, run in self.runs.items() if run.state is State.QUEUED]
        assert (got is None) == (not waiting)
        if got is not None:
            assert got.run_id == waiting[0], "claimed in the order of the sweep"
            run = self.runs[got.run_id]
            run.state, run.current = State.RUNNING, got.attempt
            self.claims.append(got)

    def any_claim(self, which: int) -> tuple[Claim, Modelled, bool] | None:
        """One attempt, its run, and whether the attempt is still open."""
        if not self.claims:
            return None
        claim = self.claims[which % len(self.claims)]
        run = self.runs[claim.run_id]
        return claim, run, run.current == claim.attempt and run.state is State.RUNNING

    @rule(at=connection, which=picked, step=st.integers(0, 5))
    def write(self, at: int, which: int, step: int) -> None:
        found = self.any_claim(which)
        if found is None or step in found[1].rows:
            return
        claim, run, is_open = found
        writer = RunWriter(self.db, claim.attempt, 1)
        writer.step(StepRow(step, 1.0, 1.0, 1.0, 1.0))
        try:
            writer.flush()
            assert is_open, "rows of an attempt that is over were taken"
            run.rows.add(step)
        except StaleAttemptError:
            assert not is_open, "rows of the current attempt were refused"
        finally:
            writer.db.close()

    @rule(at=connection, which=picked, step=st.integers(0, 5))
    def begin(self, at: int, which: int, step: int) -> None:
        found = self.any_claim(which)
        if found is not None:
            claim, run, _ = found
            self.queues[at].begin(claim.attempt, step if run.current != claim.attempt else 0)
            if run.current == claim.attempt:
                run.rows.clear()

    @rule(at=connection, which=picked, state=st.sampled_from([State.COMPLETED, State.DIVERGED, State.FAILED]))
    def finish(self, at: int, which: int, state: State) -> None:
        found = self.any_claim(which)
        if found is not None:
            claim, run, is_open = found
            assert self.queues[at].finish(claim.attempt, state) == is_open
            run.state = state if is_open else run.state

    @rule(at=connection, which=picked)
    def lose(self, at: int, which: int) -> None:
        found = self.any_claim(which)
        if found is not None:
            claim, run, is_open = found
            self.queues[at].lose(claim.attempt, "gone")
            if is_open:
                run.state = State.QUEUED if run.losses < MOST_LOSSES else State.FAILED
                run.losses += run.losses < MOST_LOSSES

    @rule(at=connection, which=picked)
    def give_back(self, at: int, which: int) -> None:
        found = self.any_claim(which)
        if found is not None:
            claim, run, is_open = found
            self.queues[at].give_back(claim.attempt, "asked")
            run.state = State.QUEUED if is_open else run.state

    @rule(at=connection, which=picked)
    def cancel(self, at: int, which: int) -> None:
        run_id = list(self.runs)[which % RUNS]
        run = self.runs[run_id]
        doomed = self.queues[at].cancel([run_id])
        assert [d.attempt for d in doomed] == ([run.current] if run.state is State.RUNNING else [])
        if run.state in (State.QUEUED, State.RUNNING):
            run.state = State.CANCELLED

    @rule(at=connection, which=picked)
    def retry(self, at: int, which: int) -> None:
        run_id = list(self.runs)[which % RUNS]
        run = self.runs[run_id]
        changes = run.state in (State.FAILED, State.CANCELLED)
        assert self.queues[at].retry([run_id]) == int(changes)
        if changes:
            run.state, run.losses = State.QUEUED, 0

    @invariant()
    def the_database_is_what_the_model_says(self) -> None:
        if not hasattr(self, "runs"):
            return
        reader = Reader(self.db)
        assert {r.run_id: r.state for r in reader.runs()} == {run_id: run.state for run_id, run in self.runs.items()}
        still_open = {a.run_id: a.attempt for a in self.queues[0].open_attempts()}
        running = {run_id: run.current for run_id, run in self.runs.items() if run.state is State.RUNNING}
        assert still_open == running, "exactly one open attempt for each running run"
        rows = reader.steps(list(self.runs)).groupby("run_id")["step"].apply(set).to_dict()
        assert rows == {run_id: run.rows for run_id, run in self.runs.items() if run.rows}
        reader.db.close()


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
