"""Real sweeps in processes of their own, with faults planted in their workers."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PLANT = """
import os, signal, sys
if {{"nlq.worker", "nlq.forkserver"}} & {{*sys.orig_argv}}:
    import nlq.training.loop as loop
    real = loop._step

    def step(run, state):
        if state.step == int(os.environ["FAULT_STEP"]) and {when}:
            {fault}
        return real(run, state)

    loop._step = step
"""
"""Imported by every worker before its own code: does something at one step."""


@dataclass
class Field:
    """A folder with a spec, in which `nlq` runs as its users run it."""

    folder: Path
    environment: dict[str, str]

    @property
    def db(self) -> Path:
        return self.folder / "runs.db"

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """Start a command without waiting for it."""
        return subprocess.Popen(
            [sys.executable, "-m", "nlq", *map(str, arguments)],
            cwd=self.folder, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        started = self.start(*arguments)
        out, _ = started.communicate(timeout=240)
        return subprocess.CompletedProcess(started.args, started.returncode, out)

    def plant(self, fault: str, step: int, when: str = "True") -> None:
        """Make every worker execute a statement before one of its steps, where the expression `when` holds."""
        folder = self.folder / "plant"
        folder.mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(PLANT.format(fault=fault, when=when))
        self.environment |= {
            "PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "FAULT_STEP": str(step),
        }

    def heal(self) -> None:
        """Take the planted fault away."""
        self.environment.pop("FAULT_STEP")
        self.environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")

    def workers(self) -> list[int]:
        """Pids of the workers that train now."""
        pids = self.ask("SELECT pid FROM attempts WHERE ended IS NULL AND pid IS NOT NULL")
        return [pid for pid in pids if Path(f"/proc/{pid}").exists()]

    def ask(self, sql: str) -> list[Any]:
        """The first column of a query, read as any other program would; nothing while the tables are not there yet."""
        with suppress(sqlite3.OperationalError):
            connection = sqlite3.connect(f"{self.db.as_uri()}?mode=ro", uri=True, timeout=60)
            try:
                return [row[0] for row in connection.execute(sql)]
            finally:
                connection.close()
        return []

    def wait(self, what: Callable[[], object], most_s: float = 120) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + most_s
        while not what():
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.05)

    def steps_done(self) -> int:
        """Recorded steps of all runs."""
        return sum(self.ask("SELECT COUNT(*) FROM steps"))


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    """A field whose spec is written by `write_spec`; nothing that it started outlives the test."""
    field = Field(tmp_path, {**os.environ})
    yield field
    for pid in field.workers():
        os.killpg(pid, signal.SIGKILL)
