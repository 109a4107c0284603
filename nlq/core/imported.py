"""A run whose numbers were made elsewhere, on its way into the database."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VAL, TRAIN, BATCH = "val", "train", "batch"
"""Splits of an imported curve: evaluations on validation and on training text, and losses of training batches."""

Losses = Mapping[str, Mapping[int, float]]
"""Nats a token by split and step."""


@dataclass(frozen=True)
class Imported:
    """What is known of such a run. `spec` holds the settings that were given, and no others.

    `source` is the file or folder that the losses stand in, `sha256` the digest of what was read there.
    """

    spec: Mapping[str, Any]
    losses: Losses
    steps_planned: int
    diverged_step: int | None
    source: str
    sha256: str
    non_embedding_params: int | None = None
    total_params: int | None = None
    flops_per_token: int | None = None

    def last(self, split: str) -> tuple[int, float] | None:
        """The last step of a split and its loss, or None where it has none."""
        return max(self.losses.get(split, {}).items(), default=None)
