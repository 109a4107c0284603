"""What tables and figures read from: the part of the store's reader that they use."""

from collections.abc import Iterable
from typing import Protocol

import pandas as pd

from nlq.core.noise import Noise
from nlq.core.run import EvalPoint, SweepRecord, WindowLosses


class Source(Protocol):
    """Anything that gives sweeps, evaluations and steps; `nlq.store.reader.Reader` is one."""

    def sweep(self, name: str | None = None) -> SweepRecord:
        """The sweep of that name, the latest when None. Raises NlqError when there is none."""

    def evals(self, run_ids: Iterable[str]) -> dict[str, list[EvalPoint]]:
        """Evaluations of each run, by step."""

    def steps(self, run_ids: Iterable[str]) -> pd.DataFrame:
        """Columns run_id, step, loss_nats, grad_norm, lr, step_ms; one row an update."""

    def windows(self, run_id: str, step: int, split: str) -> WindowLosses | None:
        """Summed losses per window and document of one evaluation, or None where they were not kept."""

    def noises(self) -> list[Noise]:
        """Every σ of one run that has been measured and kept, the latest first."""
