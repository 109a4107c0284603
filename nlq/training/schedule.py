"""The learning rate of every update."""

import math

from nlq.core.spec import OptimSpec


def learning_rate(step: int, optim: OptimSpec) -> float:
    """Linear warm-up, then a cosine to lr_min at decay_steps, then lr_min (nanoGPT `get_lr`).

    `optim` is resolved: lr_min and decay_steps are numbers. Updates count from 0.
    """
    lr_min, decay_steps = optim.lr_min or 0.0, optim.decay_steps or 1
    if step < optim.warmup_steps:
        return optim.lr_max * (step + 1) / (optim.warmup_steps + 1)
    if step >= decay_steps:
        return lr_min
    progress = (step - optim.warmup_steps) / (decay_steps - optim.warmup_steps)
    return lr_min + 0.5 * (1.0 + math.cos(math.pi * progress)) * (optim.lr_max - lr_min)
