"""A sweep under injected faults, compared bit for bit with a quiet one.

`python tests/faults/storm.py --faults 100 --seed 0` prints one line of figures; `test_storm.py` runs a short form.
"""

import argparse
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

TABLES = {
    "steps": "step, loss_nats, grad_norm, lr",
    "evals": "step, split, loss_nats, token_count, data_hash",
    "window_losses": "step, split, window_sums, window_tokens, doc_ids, doc_sums, doc_tokens",
}
STALL_TIMEOUT_S = 6
STUBBORN = """
import subprocess, sys
if "nlq.forkserver" in sys.orig_argv:
    import nlq.worker
    real = nlq.worker.main

    def main(arguments):
        subprocess.Popen(["sh", "-c", 'trap "" TERM; exec sleep {seconds}'], stdin=subprocess.DEVNULL)
        return real(arguments)

    nlq.worker.main = main
"""
"""Gives every worker a child that ignores SIGTERM; how long it sleeps tells whose it is."""
SECONDS = 10_000_000 + os.getpid()

SPEC = """
name: storm
base:
  data:  {{corpus: text, path: corpus.txt}}
  model: {{layers: 1, heads: 2, width: 16, context: 16}}
  optim: {{warmup_steps: 5}}
  train: {{steps: {steps}, batch_tokens: 128, eval_every: {evals}, eval_windows: 16, checkpoint_steps: {saves}}}
arms:
  baseline: {{}}
  nonlinear-q: {{model.variant: nonlinear_q}}
grid: {{optim.lr_max: [1e-3, 3e-3]}}
seeds: [{seeds}]
"""


@dataclass
class Storm:
    """One stormy sweep in a folder; every choice is drawn from the seed."""

    folder: Path
    seed: int
    faults: int
    small_disk: Path | None
    counts: Counter[str] = field(default_factory=Counter)
    scheduler: subprocess.Popen[bytes] | None = None
    deferred: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.db = (self.small_disk or self.folder) / "storm.db"
        self.kinds: list[Callable[[], bool]] = [
            self.kill_worker, self.kill_worker, self.kill_worker, self.kill_worker, self.freeze_worker,
            self.ask_worker, self.ask_worker, self.kill_scheduler, self.freeze_scheduler, self.interrupt_scheduler,
            self.kill_server, self.freeze_server, self.tear_checkpoint, self.tear_checkpoint, self.lock,
        ]  # fmt: skip
        if self.small_disk:
            self.kinds.append(self.fill_disk)

    def run(self) -> None:
        """Inject the faults, then let the sweep come to its end."""
        while self.counts.total() < self.faults:
            self.keep_going()
            self.run_deferred()
            time.sleep(self.random.uniform(0.05, 1.0))
            fault = self.random.choice(self.kinds)
            if self.training() and fault():
                self.counts[fault.__name__] += 1
            if self.done():
                self.start_again()
        while self.deferred:
            self.run_deferred()
            time.sleep(0.1)
        self.settle()

    def start(self) -> None:
        """Start a scheduler as a user would."""
        command = [sys.executable, "-m", "nlq", "sweep", str(self.folder / "spec.yaml"), "--db", str(self.db)]
        path = os.pathsep.join([str(self.folder / "stubborn"), os.environ.get("PYTHONPATH", "")])
        with (self.folder / "scheduler.log").open("ab") as log:
            self.scheduler = subprocess.Popen(
                [*command, "--slots", "2", "--stall-timeout", str(STALL_TIMEOUT_S)],
                stdout=log, stderr=log, start_new_session=True, env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip

    def keep_going(self) -> None:
        """A scheduler that has ended is started again, sooner or later."""
        if self.scheduler is None or self.scheduler.poll() is not None:
            self.start()

    def start_again(self) -> None:
        """All runs are finished before all faults were injected: forget the results of some, and go on."""
        with sqlite3.connect(self.db, timeout=60) as db:
            chosen = self.random.sample([run for (run,) in db.execute("SELECT run FROM runs ORDER BY run")], 4)
            for run in chosen:
                db.execute("UPDATE runs SET state = 'queued', steps_done = 0 WHERE run = ?", [run])
                for table in TABLES:
                    db.execute(f"DELETE FROM {table} WHERE run = ?", [run])
        db.close()

    def settle(self) -> None:
        """No more faults: `nlq sweep` until it says that all is done."""
        for _ in range(10):
            self.keep_going()
            assert self.scheduler
            if self.scheduler.wait(timeout=900) == 0 and self.done():
                return
        raise AssertionError(f"not settled: {self.states()}\n{(self.folder / 'scheduler.log').read_text()[-3000:]}")

    def states(self) -> dict[str, int]:
        """Runs by state."""
        return dict(query(self.db, "SELECT state, COUNT(*) FROM runs GROUP BY state"))

    def done(self) -> bool:
        """Whether every run is completed."""
        return self.db.exists() and set(self.states()) == {"completed"}

    def training(self) -> bool:
        """Whether a worker has begun: faults that hit nothing but starting processes would prove little."""
        sql = "SELECT 1 FROM attempts WHERE ended IS NULL AND started_at_utc IS NOT NULL"
        return self.db.exists() and bool(query(self.db, sql))

    def workers(self) -> list[int]:
        """Pids of workers that train now, by the database, if they still exist."""
        sql = "SELECT pid FROM attempts WHERE ended IS NULL AND pid IS NOT NULL"
        pids = [pid for (pid,) in query(self.db, sql)] if self.db.exists() else []
        return [pid for pid in pids if Path(f"/proc/{pid}").exists()]

    def signal_worker(self, number: signal.Signals) -> bool:
        pids = self.workers()
        if not pids:
            return False
        with suppress(ProcessLookupError):
            os.kill(self.random.choice(pids), number)
        return True

    def kill_worker(self) -> bool:
        return self.signal_worker(signal.SIGKILL)

    def freeze_worker(self) -> bool:
        return self.signal_worker(signal.SIGSTOP)

    def ask_worker(self) -> bool:
        return self.signal_worker(signal.SIGTERM)

    def signal_scheduler(self, number: signal.Signals) -> bool:
        if self.scheduler is None or self.scheduler.poll() is not None:
            return False
        self.scheduler.send_signal(number)
        return True

    def kill_scheduler(self) -> bool:
        return self.signal_scheduler(signal.SIGKILL)

    def interrupt_scheduler(self) -> bool:
        return self.signal_scheduler(signal.SIGINT)

    def freeze_scheduler(self) -> bool:
        stopped = self.signal_scheduler(signal.SIGSTOP)
        if stopped:
            frozen = self.scheduler
            assert frozen
            self.later(lambda: frozen.send_signal(signal.SIGCONT), 3)
        return stopped

    def signal_server(self, number: signal.Signals) -> list[int]:
        own = self.scheduler.pid if self.scheduler else 0
        servers = [pid for pid in pids_of("nlq.forkserver") if parent_of(pid) == own]
        for pid in servers:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return servers

    def kill_server(self) -> bool:
        return bool(self.signal_server(signal.SIGKILL))

    def freeze_server(self) -> bool:
        frozen = self.signal_server(signal.SIGSTOP)
        for pid in frozen:
            self.later(partial(os.kill, pid, signal.SIGCONT), 3)
        return bool(frozen)

    def tear_checkpoint(self) -> bool:
        files = sorted((self.db.parent / ".nlq/checkpoints").rglob("*.*"))
        if not files:
            return False
        path = self.random.choice(files)
        with suppress(OSError):
            content = path.read_bytes()
            cut = self.random.randrange(len(content) + 1)
            path.write_bytes(content[:cut] + self.random.choice([b"", b"\0" * 40]))
        return True

    def lock(self) -> bool:
        if not self.db.exists():
            return False
        db = sqlite3.connect(self.db, timeout=60, isolation_level=None, check_same_thread=False)
        with suppress(sqlite3.OperationalError):
            db.execute("BEGIN IMMEDIATE")
            self.later(db.close, 2)
            return True
        return False

    def fill_disk(self) -> bool:
        assert self.small_disk
        ballast = self.small_disk / "ballast"
        if ballast.exists():
            return False
        with suppress(OSError), ballast.open("wb") as file:
            while True:
                file.write(b"\0" * 65536)
        self.later(lambda: ballast.unlink(missing_ok=True), 2)
        return True

    def later(self, undo: Callable[[], None], most_s: float) -> None:
        self.deferred.append((time.monotonic() + self.random.uniform(0.2, most_s), undo))

    def run_deferred(self) -> None:
        for at, undo in list(self.deferred):
            if time.monotonic() >= at:
                self.deferred.remove((at, undo))
                with suppress(ProcessLookupError):
                    undo()


def query(db: Path, sql: str) -> list[tuple[object, ...]]:
    """Rows read as any other program would read them; none while the tables are not there yet."""
    connection = sqlite3.connect(f"file:{db}?mode=ro", uri=True, timeout=60)
    try:
        return connection.execute(sql).fetchall()
    except sqlite3.OperationalError:
        return []
    finally:
        connection.close()


def curves(db: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every recorded number of every run but times, by table, in one order."""
    sql = "SELECT run_id, {} FROM {} JOIN runs USING (run) ORDER BY run_id, step"
    return {table: sorted(query(db, sql.format(columns, table)), key=str) for table, columns in TABLES.items()}


def pids_of(word: str) -> list[int]:
    """Processes with a word in their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if word.encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
    return found


def parent_of(pid: int) -> int:
    """The parent of a process; 0 when it has gone."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def processes(folder: Path) -> list[int]:
    """Processes of a storm that still run: all but its scheduler have its folder in their environment."""
    found = pids_of(str(SECONDS))
    for pid in pids_of("nlq."):
        with suppress(OSError):
            if str(folder / "stubborn").encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


def prepare(folder: Path, runs: int, steps: int) -> None:
    """The spec and its text."""
    lines = (f"line {i} of a small text, {i * i} and {i % 7}" for i in range(2000))
    (folder / "corpus.txt").write_text("\n".join(lines))
    seeds = ", ".join(map(str, range(runs // 4)))
    (folder / "spec.yaml").write_text(
        SPEC.format(seeds=seeds, steps=steps, evals=steps // 4, saves=max(10, steps // 20))
    )
    (folder / "stubborn").mkdir()
    (folder / "stubborn/sitecustomize.py").write_text(STUBBORN.format(seconds=SECONDS))


def weather(
    folder: Path, seed: int, faults: int, runs: int = 24, steps: int = 2000, small_disk: Path | None = None
) -> str:
    """A quiet sweep and a stormy one; raises AssertionError where they differ. Returns one line of figures."""
    prepare(folder, runs, steps)
    quiet = folder / "quiet.db"
    command = [sys.executable, "-m", "nlq", "sweep", str(folder / "spec.yaml"), "--db", str(quiet), "--slots", "2"]
    subprocess.run([*command, "--runner", "inline"], check=True, capture_output=True)
    storm, began = Storm(folder, seed, faults, small_disk), time.monotonic()
    storm.run()
    took = time.monotonic() - began
    assert curves(storm.db) == curves(quiet), "a curve differs from the quiet sweep's"
    assert len(curves(quiet)["steps"]) == runs * steps
    assert query(storm.db, "PRAGMA integrity_check") == [("ok",)]
    assert query(storm.db, "SELECT attempt FROM attempts WHERE ended IS NULL") == [], "a slot is left"
    assert processes(folder) == [], "a process is left"
    (attempts,) = query(storm.db, "SELECT COUNT(*) FROM attempts")[0]
    resumed = query(storm.db, "SELECT COUNT(*) FROM attempts WHERE resumed_step > 0")[0][0]
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(storm.counts.items()))
    return (
        f"{runs} runs completed, bit for bit as in a quiet sweep, under {storm.counts.total()} faults in {took:.0f} s:"
        f" {attempts} attempts, {resumed} resumed from a checkpoint; {kinds}; seed {seed}"
    )


def small_tmpfs(folder: Path) -> Path | None:
    """A file system of a few megabytes, where this user may mount one."""
    disk = folder / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    return disk if done.returncode == 0 else None


def main() -> None:
    """The long form, with a disk that fills up where this user may mount one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, default=24)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="nlq-storm-"))
    disk = small_tmpfs(folder)
    try:
        print(weather(folder, options.seed, options.faults, options.runs, small_disk=disk))
        print(
            "the disk was filled up now and then" if disk else "no disk was filled up: mounting one is not allowed here"
        )
    finally:
        if disk:
            subprocess.run(["umount", "-l", str(disk)], check=False)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
