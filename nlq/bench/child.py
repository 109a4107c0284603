"""The parent's side of a contender's process (`_one.py`)."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from nlq.bench.contenders import Order
from nlq.core.errors import NlqError

LAST_LINES = 4
"""Of what a process said before it died: enough for an exception."""


class Child:
    """A contender's process. Use it in a `with`: it ends with the block, whatever happens."""

    def __init__(self, order: Order, environment: Mapping[str, str]) -> None:
        """Starts the process, which imports what it needs; `environment` is added to this process's own."""
        self.order, self.how, self.peak_memory_bytes = order, "", 0
        threads = {name: str(order.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "nlq.bench._one", json.dumps(vars(order))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env={**os.environ, **threads, **environment},
        )

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()
        self._said.close()

    def make(self) -> "Child":
        """Build and warm up; returns itself."""
        self.how = str(self._ask("make")["how"])
        return self

    def go(self, count: int, work: str = "train") -> float:
        """Seconds of so many steps."""
        return float(self._ask(f"go {work} {count}")["seconds"])

    def end(self) -> None:
        """Let it say its peak and go."""
        self.peak_memory_bytes = int(self._ask("end")["peak_memory_bytes"])
        self._process.wait()

    def _ask(self, line: str) -> dict[str, Any]:
        """Raises NlqError where the process has died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise self._death()
        found: dict[str, Any] = json.loads(answer)
        return found

    def _death(self) -> NlqError:
        code = self._process.wait()
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").strip().splitlines()
        words = " / ".join(said[-LAST_LINES:]) or "it said nothing"
        what = f"{self.order.contender} at size {self.order.size.name} ended with code {code}: {words}"
        return NlqError(what, "where memory ran out: --size tiny; --threads 1")
