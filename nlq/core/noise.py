"""How much one run's loss varies over seeds, as it was measured once and is kept for comparisons without seeds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Noise:
    """σ of one arm at one point, nats a token, with its 95 % χ² interval, and what it was measured on.

    `spec` is that of the first of the `run_ids`; its seed says nothing here.
    """

    sweep: str
    arm: str
    label: str
    step: int
    split: str
    mean_nats: float
    sigma_nats: float
    low_nats: float
    high_nats: float
    run_ids: tuple[str, ...]
    spec: Mapping[str, Any]
    measured_at_utc: str

    @property
    def seeds(self) -> int:
        """How many seeds σ rests on."""
        return len(self.run_ids)
