"""Records that pass between the rooms: states, rows that a run writes, and rows that a report reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol


class State(StrEnum):
    """Where a run stands. Only the planned last step makes COMPLETED."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    DIVERGED = "diverged"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


IMPORTED = "imported"
"""The corpus of a run whose numbers were made elsewhere, and the host of its one attempt."""

FINISHED = (State.COMPLETED, State.DIVERGED)
"""States of a run that needs no further training."""


class StepRow(NamedTuple):
    """One update: loss of the whole batch before it (nats a token), gradient norm before clipping, rate used."""

    step: int
    loss_nats: float
    grad_norm: float
    lr: float
    step_ms: float


class WindowLosses(NamedTuple):
    """Summed losses (nats) and predicted tokens of one evaluation, per window and per document.

    `window_*` are of length W, `doc_*` of length J; `doc_ids` index the documents of the prepared corpus.
    numpy arrays: sums float64, counts and ids int64. The document arrays are empty where bounds are unknown.
    """

    window_sums: Any
    window_tokens: Any
    doc_ids: Any
    doc_sums: Any
    doc_tokens: Any


class EvalRow(NamedTuple):
    """One evaluation of one split ("select", "confirm" or "val") before update `step`.

    `data_hash` is the rolling hash of all training batches up to there, `windows_hash` that of the windows evaluated.
    """

    step: int
    split: str
    loss_nats: float
    token_count: int
    eval_ms: float
    data_hash: str
    windows_hash: str
    windows: WindowLosses


class Sink(Protocol):
    """Where training puts its rows."""

    def step(self, row: StepRow) -> None:
        """Take one update."""

    def evaluation(self, row: EvalRow) -> None:
        """Take one evaluation."""

    def flush(self) -> None:
        """Make what was taken safe, before a checkpoint relies on it."""


class Outcome(NamedTuple):
    """How training ended: at the planned last step, unless it diverged at a step or was interrupted by request."""

    steps_done: int
    diverged_step: int | None
    data_hash: str
    interrupted: bool = False


@dataclass(frozen=True)
class CodeState:
    """The source that runs: a digest of its files, and the commit (None where it is not under git)."""

    source_sha256: str
    git_commit: str | None
    git_dirty: bool | None


@dataclass(frozen=True)
class Provenance:
    """Where and with what an attempt ran. `device_uuid` is the GPU that the process itself found, or all of its
    GPUs, joined as the names of their slots."""

    host: str
    device: str
    threads: int
    nlq_version: str
    torch_version: str
    python_version: str
    git_commit: str | None
    git_dirty: bool | None
    source_sha256: str | None = None
    device_uuid: str | None = None


@dataclass(frozen=True)
class RunRecord:
    """One row of the queue, as a report or `nlq status` reads it. None where a number is not known yet.

    `energy_joules` is what the devices used in all attempts that trained; None where one of them does not know it.
    `train_tokens` are those of the text that is trained on, read once or many times.
    """

    run_id: str
    spec_key: str
    state: State
    spec: Mapping[str, Any]
    seed: int
    non_embedding_params: int | None
    total_params: int | None
    flops_per_token: int | None
    steps_planned: int
    steps_done: int
    last_loss_nats: float | None
    tokens_per_s: float | None
    diverged_step: int | None
    failure_class: str | None
    failure_message: str | None
    priority: int
    queued_at_utc: str
    started_at_utc: str | None
    finished_at_utc: str | None
    provenance: Provenance | None = None
    log_path: str | None = None
    imported_from: str | None = None
    imported_sha256: str | None = None
    energy_joules: float | None = None
    train_tokens: int | None = None

    @property
    def imported(self) -> bool:
        """Whether its numbers were made elsewhere: which batches and windows they are of is not known."""
        return self.imported_from is not None


@dataclass(frozen=True)
class Member:
    """A run's place in a sweep: its arm, the arm's label, and the point of the grid (dotted settings)."""

    arm: str
    label: str
    point: Mapping[str, Any]
    run: RunRecord


@dataclass(frozen=True)
class SweepRecord:
    """A sweep with its members in the order of expansion."""

    name: str
    baseline: str
    created_at_utc: str
    members: tuple[Member, ...] = field(default=())

    def arms(self) -> dict[str, list[Member]]:
        """Members by arm, arms in the order of the spec."""
        by_arm: dict[str, list[Member]] = {}
        for member in self.members:
            by_arm.setdefault(member.arm, []).append(member)
        return by_arm


class EvalPoint(NamedTuple):
    """One evaluation's loss as a report reads it: nats a token over `token_count` tokens.

    Of an imported run neither the tokens nor the hashes are known.
    """

    step: int
    split: str
    loss_nats: float
    token_count: int | None
    data_hash: str | None
    windows_hash: str | None = None
