"""The learning rate of every update."""

import math

from nlq.core.optim import OptimSpec


def learning_rate(step: int, optim: OptimSpec) -> float:
    """Linear warm-up, the schedule's decay to lr_min at decay_steps, then lr_min. Updates count from 0.

    cosine: half a cosine from the end of the warm-up (nanoGPT `get_lr`).
    linear: a straight line from there; to zero, the default, it is Bergsma et al. 2025, arXiv 2502.15938.
    wsd: lr_max until the last decay_share of decay_steps (Hu et al. 2024, MiniCPM, arXiv 2404.06395), then a straight
    line, as Hägele et al. 2024, arXiv 2405.18392, let it fall.

    `optim` is resolved: lr_min and decay_steps are numbers.
    """
    lr_min, decay_steps, start = optim.lr_min or 0.0, optim.decay_steps or 1, optim.decay_start
    if step < optim.warmup_steps:
        return optim.lr_max * (step + 1) / (optim.warmup_steps + 1)
    if step >= decay_steps:
        return lr_min
    if step < start:
        return optim.lr_max
    progress = (step - start) / (decay_steps - start)
    left = 0.5 * (1.0 + math.cos(math.pi * progress)) if optim.schedule == "cosine" else 1.0 - progress
    return lr_min + left * (optim.lr_max - lr_min)
