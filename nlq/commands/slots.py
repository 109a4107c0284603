"""`--slots`: a number, or "auto", which tries how the cores are best shared out and decides."""

import math
from pathlib import Path

from nlq.commands._console import console, duration, slots_text
from nlq.core.errors import NlqError
from nlq.core.launch import Slot
from nlq.runners._slots import cores, slots

AUTO = "auto"


def slots_of_sweep(given: str | None, gpus: str | None, per_device: int | None, spec: Path, cache: Path) -> list[Slot]:
    """The slots that a sweep asks for. Raises NlqError."""
    if given != AUTO:
        return slots(None if given is None else _number(given), gpus, per_device)
    slots(1, gpus, per_device)  # refuses what contradicts the CPU
    choices = [slots(count) for count in range(1, cores() + 1) if cores() % count == 0]
    return _quickest(choices, spec, cache)


def _number(given: str) -> int:
    if not given.isdecimal():
        raise NlqError(f"--slots {given}: a number, or auto", f"--slots {cores()}; --slots auto")
    return int(given)


def _quickest(choices: list[list[Slot]], spec: Path, cache: Path) -> list[Slot]:
    from nlq.commands.dry_run import estimated_seconds

    screen = console(stderr=True)
    seconds = [estimated_seconds(spec, cache, choice) for choice in choices]
    for choice, taken in zip(choices, seconds, strict=True):
        if not math.isfinite(taken):
            continue
        screen.print(f"{slots_text(choice)}: about {duration(taken)}", style="dim")
    return choices[seconds.index(min(seconds))]
