"""Printing: one console for results, one for what goes with them, and strict JSON."""

import json
import math
import sys
from typing import Any

from rich.console import Console

from nlq.core.launch import Slot
from nlq.report.render import strict
from nlq.stats.printing import DASH, plural

WIDTH_WITHOUT_TERMINAL = 140


def console(*, stderr: bool = False) -> Console:
    """Standard output, or standard error for progress and remarks; wide where it is not a terminal."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream,
        width=None if stream.isatty() else WIDTH_WITHOUT_TERMINAL,
        highlight=False,
        markup=False,
        emoji=False,
    )


def print_json(value: Any) -> None:
    """One JSON document without NaN or infinities, which strict parsers refuse: they become null or a word."""
    sys.stdout.write(json.dumps(strict(value), indent=2, allow_nan=False) + "\n")


def dash(value: Any, form: str = "") -> str:
    """A value in a format, or a dash where it is missing."""
    return DASH if value is None else format(value, form)


def size(count_of_bytes: int) -> str:
    """Memory in GB or MB."""
    return f"{count_of_bytes / 1e9:.2f} GB" if count_of_bytes >= 1e9 else f"{count_of_bytes / 1e6:.1f} MB"


def duration(seconds: float | None) -> str:
    """Seconds as 12 s, 3 m 05 s, 2 h 10 m or 4 d 3 h."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    whole = round(seconds)
    for size, name, below, below_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // below:02d} {below_name}"
    return f"{whole} s"


def slots_text(slots: list[Slot]) -> str:
    """How many runs train at a time, and on what."""
    return f"{plural(len(slots), 'slot')} of {plural(slots[0].threads, 'thread')} ({slots[0].device})"
