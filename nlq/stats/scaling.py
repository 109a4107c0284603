"""What a gain in loss is worth in parameters, by a local power law L - E = c·N^-α (METHOD 4.6)."""

import math

from nlq.core.errors import NlqError


def local_exponent(baseline_nats: float, control_nats: float, params_ratio: float, floor_nats: float = 0.0) -> float:
    """α through two points: ln((L_base - E) / (L_control - E)) / ln(N_control / N_base).

    Raises NlqError where no exponent exists: a ratio that is not above 1, or a loss at or below the floor E.
    """
    if params_ratio <= 1:
        raise NlqError(f"the control must have more parameters than the baseline; the ratio is {params_ratio:g}")
    return _log_ratio(baseline_nats, control_nats, floor_nats) / math.log(params_ratio)


def equivalent_params(baseline_nats: float, variant_nats: float, exponent: float, floor_nats: float = 0.0) -> float:
    """How many times the baseline's parameters would reach the variant's loss: ((L_base - E) / (L - E))^(1/α).

    Raises NlqError when the exponent is not positive (the larger control was not better).
    """
    if not exponent > 0:
        raise NlqError(f"the larger control is not better (exponent {exponent:.4f}): no equivalent parameters")
    return math.exp(_log_ratio(baseline_nats, variant_nats, floor_nats) / exponent)


def _log_ratio(baseline_nats: float, other_nats: float, floor_nats: float) -> float:
    if min(baseline_nats, other_nats) <= floor_nats:
        raise NlqError(f"a loss is at or below the floor of {floor_nats:g} nats")
    return math.log((baseline_nats - floor_nats) / (other_nats - floor_nats))
