"""Real sweeps in processes of their own, with faults planted in their workers."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from nlq.store.reader import Reader

PLANT = """
import os, signal, sys
if "nlq.worker" in sys.orig_argv:
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
        if not self.db.exists():
            return []
        reader = Reader(self.db)
        open_ones = reader.db.execute("SELECT pid FROM attempts WHERE ended IS NULL AND pid IS NOT NULL").fetchall()
        reader.db.close()
        return [pid for (pid,) in open_ones if Path(f"/proc/{pid}").exists()]

    def wait(self, what: Callable[[], object], most_s: float = 120) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + most_s
        while not what():
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.05)

    def steps_done(self) -> int:
        """Recorded steps of all runs."""
        if not self.db.exists():
            return 0
        reader = Reader(self.db)
        (count,) = reader.db.execute("SELECT COUNT(*) FROM steps").fetchone()
        reader.db.close()
        return int(count)


@pytest.fixture
def field(tmp_path: Path, write_spec: Callable[..., Path]) -> Field:
    """A field whose spec is written by `write_spec`; nothing that it started outlives the test."""
    field = Field(tmp_path, {**os.environ})
    yield field
    for pid in field.workers():
        os.killpg(pid, signal.SIGKILL)
