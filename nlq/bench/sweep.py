"""A sweep of eight tiny runs, from `nlq sweep` to the last row, against eight plain processes one after the other."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nlq.bench.compare import TOKENS, Say, Setting, order
from nlq.bench.contenders import PLAIN
from nlq.bench.sizes import Size
from nlq.core.errors import NlqError

RUNS = 8
STEPS = 200
SIZE = Size("tiny", 4, 4, 128, 64, 12, 320)
"""The tiny size with the vocabulary that bytes need."""

LINES = 20_000


def sweep(setting: Setting, say: Say, size: Size = SIZE, steps: int = STEPS, runs: int = RUNS) -> dict[str, Any]:
    """Seconds of both ways, in one row. Half of the plain processes come before the sweep, half after it."""
    with tempfile.TemporaryDirectory(prefix="nlq-bench-") as name:
        folder = Path(name)
        spec = write_spec(folder, setting, size, steps, runs)
        tokens = np.random.default_rng(0).integers(0, size.vocab, TOKENS).astype(np.uint16)
        tokens.tofile(folder / "tokens.bin")
        say(f"sweep: {runs // 2} plain processes, one after the other")
        plain_s = _plain(folder, setting, size, steps, runs // 2)
        say(f"sweep: nlq sweep of {runs} runs")
        nlq_s = _timed([sys.executable, "-P", "-m", "nlq", "sweep", str(spec), *_options(folder)], _environment(folder))
        say(f"sweep: {runs - runs // 2} plain processes more")
        plain_s += _plain(folder, setting, size, steps, runs - runs // 2)
    row = {"runs": runs, "steps": steps, "precision": setting.precision, "plain_s": plain_s, "nlq_s": nlq_s}
    return {**row, "ratio": plain_s / nlq_s}


def write_spec(folder: Path, setting: Setting, size: Size, steps: int, runs: int) -> Path:
    """A spec of one arm and as many seeds as runs, with its text beside it."""
    text = "\n".join(f"line {i} of a made-up text: {i * i} and {i % 7}, {i % 11}" for i in range(LINES))
    (folder / "corpus.txt").write_text(text, encoding="utf-8")
    shape = {name: getattr(size, name) for name in ("layers", "heads", "width", "context", "vocab")}
    train = {"steps": steps, "batch_tokens": size.tokens, "precision": setting.precision}
    spec = {
        "name": "bench",
        "base": {
            "data": {"corpus": "text", "path": "corpus.txt"},
            "model": shape,
            "optim": {"warmup_steps": min(30, steps // 2)},
            "train": {**train, "eval_every": steps, "eval_windows": 32},
        },
        "arms": {"baseline": {}},
        "seeds": list(range(runs)),
    }
    path = folder / "spec.yaml"
    path.write_text(json.dumps(spec), encoding="utf-8")  # JSON is YAML
    return path


def _options(folder: Path) -> list[str]:
    return ["--gpus", "none", "--db", str(folder / "runs.db")]


def _environment(folder: Path) -> dict[str, str]:
    return {"NLQ_CACHE": str(folder / "cache")}


def _plain(folder: Path, setting: Setting, size: Size, steps: int, runs: int) -> float:
    """Seconds of so many plain processes, each on all threads."""
    wanted = order(size, setting._replace(device="cpu"), PLAIN, folder / "tokens.bin")
    command = [sys.executable, "-P", "-m", "nlq.bench._alone", json.dumps(vars(wanted)), str(steps)]
    threads = {name: str(setting.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    return sum(_timed(command, threads) for _ in range(runs))


def _timed(command: list[str], environment: Mapping[str, str]) -> float:
    """Seconds of a process. Raises NlqError where it fails."""
    began = time.perf_counter()
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " / ".join(done.stderr.strip().splitlines()[-4:])
        raise NlqError(f"{' '.join(command[3:5])} ended with code {done.returncode}: {said}", "nlq doctor")
    return time.perf_counter() - began
