"""One size: the floor, the plain step, the tuned step and nlq's, in turn; and the rows that they give."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nlq.bench.child import Child
from nlq.bench.contenders import FLOOR, NLQ, PLAIN, TUNED, Order
from nlq.bench.interleave import Spread, Turns, interleave, ratios, spread
from nlq.bench.sizes import Size

CONTENDERS = (FLOOR, PLAIN, TUNED, NLQ)

TOKENS = 2**21
"""Tokens of the made-up text: 4 MiB, which the steps of a measurement do not exhaust."""

Say = Callable[[str], None]


class Setting(NamedTuple):
    """How to measure. `memory` is the environment of every contender that tunes its memory: all but the plain one."""

    device: str
    threads: int
    precision: str
    turns: Turns
    memory: Mapping[str, str]
    compiled: bool = True


def order(size: Size, setting: Setting, contender: str, tokens: Path, variant: str = "baseline") -> Order:
    """What one process is asked for."""
    return Order(
        contender=contender,
        size=size,
        tokens=str(tokens),
        device=setting.device,
        threads=setting.threads,
        precision=setting.precision,
        compiled=setting.compiled,
        variant=variant,
    )


def start(size: Size, setting: Setting, contender: str, tokens: Path, variant: str = "baseline") -> Child:
    """The process of a contender, which is not made yet."""
    memory = {} if contender == PLAIN else setting.memory
    return Child(order(size, setting, contender, tokens, variant), memory)


@contextmanager
def made_up_tokens(vocab: int) -> Iterator[Path]:
    """A file of uint16 below `vocab`, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="nlq-bench-") as folder:
        path = Path(folder) / "tokens.bin"
        np.random.default_rng(0).integers(0, vocab, TOKENS).astype(np.uint16).tofile(path)
        yield path


def compare(size: Size, setting: Setting, say: Say) -> dict[str, Any]:
    """The row of a size."""
    with ExitStack() as stack:
        tokens = stack.enter_context(made_up_tokens(size.vocab))
        children = {name: stack.enter_context(start(size, setting, name, tokens)) for name in CONTENDERS}
        for name, child in children.items():
            say(f"{size.name}: warming up {name}")
            child.make()
        say(f"{size.name}: measuring")
        taken = interleave({name: child.go for name, child in children.items()}, setting.turns)
        for child in children.values():
            child.end()
        return row(
            size, setting, taken, {name: (child.how, child.peak_memory_bytes) for name, child in children.items()}
        )


def row(
    size: Size, setting: Setting, taken: Mapping[str, Sequence[float]], made: Mapping[str, tuple[str, int]]
) -> dict[str, Any]:
    """Figures from seconds a step, one number a round; `made` is what each had settled for, and its peak memory.

    `ratio_plain` is how many times as many tokens nlq trains in a second as the plain step does; `share_of_floor`
    is the floor's time as a share of a step's.
    """
    return {
        "size": size.name,
        "shape": {name: value for name, value in size._asdict().items() if name != "name"},
        "tokens_per_step": size.tokens,
        "device": setting.device,
        "threads": setting.threads,
        "precision": setting.precision,
        "rounds": len(taken[NLQ]),
        **_with_quartiles("ratio_plain", ratios(taken[PLAIN], taken[NLQ])),
        **_with_quartiles("ratio_tuned", ratios(taken[TUNED], taken[NLQ])),
        **_with_quartiles("share_of_floor", ratios(taken[FLOOR], taken[NLQ])),
        "contenders": {name: _contender(size, taken, name, *made[name]) for name in taken},
    }


def _with_quartiles(name: str, found: Spread) -> dict[str, float]:
    return {name: found.median, f"{name}_low": found.low, f"{name}_high": found.high}


def _contender(size: Size, taken: Mapping[str, Sequence[float]], name: str, how: str, memory: int) -> dict[str, Any]:
    step_s = spread(taken[name])
    return {
        "how": how,
        **_with_quartiles("step_ms", Spread(*(1000 * figure for figure in step_s))),
        "tokens_per_s": size.tokens / step_s.median,
        "share_of_floor": ratios(taken[FLOOR], taken[name]).median if FLOOR in taken else None,
        "peak_memory_bytes": memory,
    }
