"""Runs that a fork server starts: quick, and with everything that they need already imported."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nlq.commands.planning import plan_to_run
from nlq.core.launch import Launch, Slot
from nlq.core.run import CodeState
from nlq.data.prepare import cache_folder
from nlq.runners import local
from nlq.runners._process import this_process
from nlq.store.queue import Counts, Queue
from nlq.training.pace import Paces

SLOT = Slot("cpu:0", "cpu", 1, {"CUDA_VISIBLE_DEVICES": ""})


class Claims:
    """A database with queued runs, and what a worker is told about each."""

    def __init__(self, folder: Path, spec: Path) -> None:
        self.folder, self.queue = folder, Queue(folder / "runs.db")
        paces = Paces(cache_folder(), [SLOT], "", lambda _: None)
        sweep = plan_to_run(spec, cache_folder(), paces, lambda _: None).sweep
        self.queue.enqueue(sweep, {run.key: Counts(1, 1, 1) for run in sweep.runs}, CodeState("", None, None))

    def claim(self) -> tuple[int, tuple[str, ...]]:
        """An attempt, and the arguments of its worker."""
        claim = self.queue.claim(None, this_process(), SLOT.name, self.folder)
        assert claim
        where = ("--db", self.folder / "runs.db", "--cache", cache_folder(), "--checkpoints", self.folder / "saved")
        return claim.attempt, (*map(str, where), "--token", claim.token, "--threads", "1")

    def column(self, attempt: int, name: str) -> object:
        """What an attempt's row says."""
        return self.queue.db.execute(f"SELECT {name} FROM attempts WHERE attempt = ?", [attempt]).fetchone()[0]

    def seconds_to(self, name: str, attempt: int, start: Callable[[], object]) -> float:
        """From the start of a worker until it has recorded a column of its attempt; then wait for its end."""
        began = time.monotonic()
        started = start()
        while self.column(attempt, name) is None:
            assert time.monotonic() < began + 120
            time.sleep(0.002)
        took = time.monotonic() - began
        while self.column(attempt, "ended") is None:
            time.sleep(0.01)
        del started
        return took


@pytest.fixture
def claims(tmp_path: Path, write_spec: Callable[..., Path]) -> Claims:
    return Claims(tmp_path, write_spec("name: s\narms: {a: {}, b: {model.variant: nonlinear_q}}\nseeds: [0, 1, 2]"))


@pytest.mark.parametrize("column", ["pid", "started_at_utc"])
def test_the_second_start_is_many_times_quicker_than_a_cold_one(claims: Claims, tmp_path: Path, column: str) -> None:
    runner, took = local.make(lambda _: 0), []
    for number in range(3):
        attempt, arguments = claims.claim()
        launch = Launch(arguments, tmp_path / f"{number}.log", SLOT)
        took.append(claims.seconds_to(column, attempt, lambda launch=launch: runner.start(launch)))
    attempt, arguments = claims.claim()
    command = [sys.executable, "-P", "-m", "nlq.worker", *arguments]
    cold = claims.seconds_to(column, attempt, lambda: subprocess.Popen(command, stdout=subprocess.DEVNULL))
    print(f"{1000 * took[0]:.0f}, then {1000 * took[1]:.0f} and {1000 * took[2]:.0f} ms; cold {1000 * cold:.0f} ms")
    assert cold > 5 * min(took[1:])


IMPORTS = """
import json, sys
from nlq import worker
worker.import_all()
before = {*sys.modules}
code = worker.main(sys.argv[1:])
print(json.dumps([code, [name for name in sys.modules if name not in before]]))
"""


def test_a_run_imports_nothing_that_a_server_has_not(claims: Claims) -> None:
    _, arguments = claims.claim()
    done = subprocess.run([sys.executable, "-c", IMPORTS, *arguments], capture_output=True, text=True, check=True)
    code, late = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stdout
    assert not [name for name in late if name.startswith("nlq")]
    assert len(late) < 10, "a few modules of PyTorch's own"
