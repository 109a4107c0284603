"""Checkpoints: everything that the next step depends on, so that a resumed run equals an uninterrupted one.

A checkpoint is two files, tensors (safetensors) and a description (JSON) with their digest. Both are written aside,
fsynced and renamed, the description last: a checkpoint without a right description does not exist. Nothing that is
read can run code.
"""

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from nlq.core.disk import put
from nlq.core.spec import RunSpec, spec_key
from nlq.training.engine import Engine
from nlq.training.guard import Guard

FORMAT = 1
KEPT = 2
"""The last good checkpoint stays until the next is safe; one more stays in case that one is damaged later."""


WRITE_S, WRITTEN_BYTES_PER_S = 0.02, 3e8
"""What a checkpoint takes to be copied, digested and brought to a disk, roughly: for itself and by its size."""


def checkpoint_bytes(spec: RunSpec, parameters: int) -> int:
    """Disk that a run's checkpoints need at most while it trains, milestones apart: the next one is written beside
    those that are kept."""
    return (KEPT + 1) * _bytes_each(spec, parameters)


def kept_bytes(spec: RunSpec, parameters: int) -> int:
    """Disk that its milestones (train.keep_steps) keep for good."""
    return len(set(spec.train.keep_steps)) * _bytes_each(spec, parameters)


def checkpoint_seconds(spec: RunSpec, parameters: int, seconds: float) -> float:
    """Roughly what writing checkpoints adds to a run that trains for so many seconds."""
    train = spec.train
    by_steps = train.steps // train.checkpoint_steps if train.checkpoint_steps else 0
    by_time = int(seconds // (60 * train.checkpoint_minutes)) if train.checkpoint_minutes else train.steps
    written = min(train.steps, by_steps + by_time + len(set(train.keep_steps)))
    return written * (WRITE_S + _bytes_each(spec, parameters) / WRITTEN_BYTES_PER_S)


def _bytes_each(spec: RunSpec, parameters: int) -> int:
    """Weights and, with AdamW, two moments; other optimisers keep fewer."""
    return 3 * parameters * (8 if spec.train.precision == "float64" else 4)


@dataclass
class TrainingState:
    """Where a run stands between two steps: `step` updates are done, the evaluation at `step` is not.

    Batches are functions of the step, so their position is the step; `data_hash` covers those that were read.
    """

    step: int = 0
    data_hash: str = ""
    guard: Guard = field(default_factory=Guard)


@dataclass
class Checkpoints:
    """The checkpoints of one run in a folder of its own.

    `tell` takes a sentence about a checkpoint that is damaged; `threads` is pinned, since it decides rounding.
    """

    folder: Path
    spec: RunSpec
    threads: int
    tell: Callable[[str], None]
    saved_step: int = 0
    _saved_at: float = field(default_factory=time.monotonic)

    def due(self, step: int) -> bool:
        """Whether a checkpoint should be written before `step`: by steps, by minutes, or as a milestone."""
        train = self.spec.train
        if step == self.saved_step:
            return False
        by_steps = train.checkpoint_steps is not None and step % train.checkpoint_steps == 0
        by_time = time.monotonic() - self._saved_at >= 60 * train.checkpoint_minutes
        return by_steps or by_time or step in train.keep_steps

    def save(self, state: TrainingState, engine: Engine) -> None:
        """Write one, then remove what it replaces. OSError when there is no room; nothing is damaged then."""
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors_path = self._path(state.step, "safetensors")
        put(tensors_path, lambda aside: save_file(_apart(engine.tensors()), aside))
        description = {
            "format": FORMAT,
            "spec_key": spec_key(self.spec),
            "threads": self.threads,
            "state": asdict(state),
            "random": torch.get_rng_state().numpy().tobytes().hex(),
            "tensors_sha256": _file_digest(tensors_path),
        }
        text = json.dumps({"description": description, "sha256": _digest(description)})
        put(self._path(state.step, "json"), lambda aside: aside.write_text(text, encoding="utf-8"))
        self.saved_step, self._saved_at = state.step, time.monotonic()
        self._prune(keep_recent=KEPT)

    def restore(self, engine: Engine, usable: Callable[[int], bool]) -> TrainingState:
        """Load the newest checkpoint that is whole and `usable` (by its step), or the state of a run's beginning."""
        for step in self.steps():
            description = self._description(step)
            if description is None or not usable(step):
                continue
            engine.load(load_file(self._path(step, "safetensors")))
            torch.set_rng_state(torch.frombuffer(bytearray.fromhex(description["random"]), dtype=torch.uint8))
            saved = description["state"]
            self.saved_step = step
            return TrainingState(saved["step"], saved["data_hash"], Guard(**saved["guard"]))
        return TrainingState()

    def pinned_threads(self) -> int:
        """The thread count of the newest whole checkpoint, or this attempt's: another count gives other bits."""
        whole = (description for step in self.steps() if (description := self._description(step)))
        return int(next(whole, {"threads": self.threads})["threads"])

    def finish(self) -> None:
        """Remove all but milestones: the run has ended."""
        self._prune(keep_recent=0)

    def steps(self) -> list[int]:
        """Steps of all checkpoints that have a description, the newest first."""
        return sorted((int(path.stem) for path in self.folder.glob("*.json") if path.stem.isdigit()), reverse=True)

    def _path(self, step: int, kind: str) -> Path:
        return self.folder / f"{step:09d}.{kind}"

    def _description(self, step: int) -> dict[str, Any] | None:
        """The description of a checkpoint, or None, with a word about it, where anything in it is not right."""
        try:
            outer = json.loads(self._path(step, "json").read_text(encoding="utf-8"))
            description: dict[str, Any] = outer["description"]
            right = outer["sha256"] == _digest(description) and description["format"] == FORMAT
            right = right and description["spec_key"] == spec_key(self.spec)
            right = right and description["tensors_sha256"] == _file_digest(self._path(step, "safetensors"))
        except (OSError, ValueError, KeyError, TypeError, SafetensorError):
            right = False
        if not right:
            self.tell(f"the checkpoint at step {step} is damaged; looking for an earlier one")
            return None
        return description

    def _prune(self, keep_recent: int) -> None:
        ordinary = [step for step in self.steps() if step not in self.spec.train.keep_steps]
        for step in ordinary[keep_recent:]:
            for kind in ("json", "safetensors"):
                self._path(step, kind).unlink(missing_ok=True)
        with suppress(OSError):  # only where nothing is left in it
            self.folder.rmdir()


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """As the file format wants them: no two in one piece of memory."""
    return {
        name: tensor.clone() if tensor.storage_offset() or tensor._is_view() else tensor
        for name, tensor in tensors.items()
    }


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(description: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()
