"""When training is gone: a loss that is not finite, that has risen too far, or that is worse than guessing."""

import math
from dataclasses import dataclass

from nlq.core.spec import RunSpec

SMOOTHING = 0.95
"""Weight of the past in the smoothed training loss, a mean over about twenty steps."""


@dataclass
class Guard:
    """Watches the training loss of one run. Its fields are its whole state, so that a resumed run watches on.

    Training is gone when the smoothed loss stays `guard_rise_nats` above its best, or, after warm-up, above the loss
    ln V of guessing, for `guard_steps` steps.
    """

    smoothed: float = math.inf
    best: float = math.inf
    risen_steps: int = 0
    guessing_steps: int = 0

    def gone(self, step: int, loss: float, spec: RunSpec) -> bool:
        """Take the loss (nats) of one step; whether training should stop there."""
        if not math.isfinite(loss):
            return True
        first = math.isinf(self.smoothed)
        self.smoothed = loss if first else SMOOTHING * self.smoothed + (1 - SMOOTHING) * loss
        self.best = min(self.best, self.smoothed)
        train, guessing = spec.train, math.log(spec.model.vocab or 2)
        self.risen_steps = _longer(self.risen_steps, self.smoothed > self.best + train.guard_rise_nats)
        warm = step >= spec.optim.warmup_steps
        self.guessing_steps = _longer(self.guessing_steps, warm and train.guard_guessing and self.smoothed > guessing)
        return max(self.risen_steps, self.guessing_steps) >= train.guard_steps


def _longer(steps: int, more: bool) -> int:
    return steps + 1 if more else 0
