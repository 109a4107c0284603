"""Printing: one console for results, one for what goes with them, and strict JSON."""

import json
import math
import sys
from typing import Any

from rich.console import Console

from nlq.core.launch import Slot

WIDTH_WITHOUT_TERMINAL = 140


def console(*, stderr: bool = False) -> Console:
    """Standard output, or standard error for progress and remarks; wide where it is not a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(file=stream, width=None if stream.isatty() else WIDTH_WITHOUT_TERMINAL, highlight=False)


def print_json(value: Any) -> None:
    """One JSON document without NaN or infinities, which strict parsers refuse: they become null or a word."""
    sys.stdout.write(json.dumps(_strict(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def dash(value: Any, form: str = "") -> str:
    """A value in a format, or a dash where it is missing."""
    return "–" if value is None else format(value, form)


def count(value: float | None) -> str:
    """A count in thousands, millions or billions: 84.95M."""
    if value is None:
        return "–"
    for size, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.2f}{letter}"
    return f"{value:g}"


def duration(seconds: float | None) -> str:
    """Seconds as 12 s, 3 m 05 s, 2 h 10 m or 4 d 3 h."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    whole = round(seconds)
    for size, name, below, below_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // below:02d} {below_name}"
    return f"{whole} s"


def slots_text(slots: list[Slot]) -> str:
    """How many runs train at a time, and on what."""
    return f"{len(slots)} slot(s) of {slots[0].threads} thread(s) ({slots[0].device})"


def point_text(point: dict[str, Any] | Any) -> str:
    """A point of the grid on one line: lr_max=0.001 weight_decay=0.1."""
    return " ".join(
        f"{name.split('.')[-1]}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in point.items()
    )
