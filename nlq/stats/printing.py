"""How numbers are printed in tables and figures; what is stored and computed stays in full."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from nlq.stats.effects import Interval

DASH = "–"
"""Stands where a number is missing."""

SYMBOLS = {"optim.lr_max": "η_max", "optim.lr_min": "η_min", "optim.weight_decay": "λ"}
"""The field's letters for settings that grids vary most."""


def loss(nats: float | None) -> str:
    """A loss with four decimals."""
    return DASH if nats is None or not math.isfinite(nats) else f"{nats:.4f}"


def percent(fraction: float | None, sign: bool = False) -> str:
    """A fraction in percent with two decimals: 0.024 as "2.40 %"."""
    if fraction is None or not math.isfinite(fraction):
        return DASH
    text = f"{100 * fraction:+.2f}" if sign else f"{100 * fraction:.2f}"
    return f"{text.replace('-', '−')} %"


def nats(value: float | None) -> str:
    """A difference in nats with its sign and four decimals: "+0.0212"."""
    return DASH if value is None or not math.isfinite(value) else f"{value:+.4f}".replace("-", "−")


def between(ends: Interval | None, form: Callable[[float], str]) -> str:
    """An interval as "[low, high]", or a dash."""
    return DASH if ends is None else f"[{form(ends.low)}, {form(ends.high)}]"


def p_value(value: float | None) -> str:
    """A p-value with two digits, or "<0.001"."""
    return DASH if value is None else "<0.001" if value < 0.001 else f"{value:.2g}"


def z_value(value: float) -> str:
    """A z with its sign and two decimals."""
    return f"{value:+.2f}".replace("-", "−")


def rate(value: float | None) -> str:
    """A learning rate as people write it: 0.0036 as "3.6e-3"."""
    if value is None or not math.isfinite(value):
        return DASH
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.3e}".split("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def plain(value: float | None) -> str:
    """A number with as many digits as it needs, up to six."""
    return DASH if value is None or not math.isfinite(value) else f"{value:g}"


def count(value: int) -> str:
    """A count of parameters or tokens: 84953856 as "84.95M"."""
    for unit, name in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K")):
        if value >= unit:
            return f"{value / unit:.2f}{name}"
    return str(value)


def setting(name: str, value: Any) -> str:
    """One setting of a point: ("optim.lr_max", 0.002) as "η_max 2e-3"."""
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    text = rate(value) if numeric and ".lr_" in name else plain(value) if numeric else str(value)
    return f"{SYMBOLS.get(name, name.rsplit('.', 1)[-1])} {text}"


def settings(point: Mapping[str, Any]) -> str:
    """The settings of a point, separated by commas."""
    return ", ".join(setting(name, value) for name, value in point.items())


def plural(count: int, noun: str) -> str:
    """The count with its noun: "1 run", "2 runs"."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"
