"""What each variant costs beside the baseline: training, prefill and decode, which counts of FLOPs do not tell.

Every variant meets the baseline by itself, in turn, so that two models are in memory at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from nlq.bench.child import Child
from nlq.bench.compare import Say, Setting, made_up_tokens, start
from nlq.bench.contenders import NLQ
from nlq.bench.interleave import Spread, interleave, ratios, spread
from nlq.bench.sizes import Size, spec_of
from nlq.models.cost import cost
from nlq.models.variants import variants

BASELINE = "baseline"

WORKS = {
    "train": "a training step",
    "prefill": "the losses of one context, without a gradient",
    "decode": "one more token after a context, no cache: a forward pass over all that came before",
}

Taken = Mapping[str, Sequence[float]]


def arms(size: Size, setting: Setting, say: Say) -> list[dict[str, Any]]:
    """A row a variant, the baseline first."""
    with ExitStack() as stack:
        tokens = stack.enter_context(made_up_tokens(size.vocab))
        say(f"{size.name}: warming up {BASELINE}")
        base = stack.enter_context(start(size, setting, NLQ, tokens)).make()
        others = [name for name in variants() if name != BASELINE]
        taken = {name: _pair(size, setting, base, name, tokens, say) for name in others}
        base.end()
    return rows(size, taken)


def rows(size: Size, taken: Mapping[str, tuple[Taken, int]]) -> list[dict[str, Any]]:
    """From what `_pair` gives for every variant but the baseline, whose own figures are those of all pairs."""
    own = {work: [s for pair, _ in taken.values() for s in pair[f"{BASELINE} {work}"]] for work in WORKS}
    first = _row(size, BASELINE, {work: spread(seconds) for work, seconds in own.items()})
    return [first, *(_beside(size, name, pair, peak) for name, (pair, peak) in taken.items())]


def _pair(size: Size, setting: Setting, base: Child, name: str, tokens: Path, say: Say) -> tuple[Taken, int]:
    """Seconds of a variant's works and the baseline's, by "variant work", and the variant's peak memory."""
    say(f"{size.name}: measuring {name} beside {BASELINE}")
    with start(size, setting, NLQ, tokens, name) as child:
        child.make()
        sides = {BASELINE: base, name: child}
        works: dict[str, Callable[[int], float]] = {
            f"{side} {work}": partial(one.go, work=work) for work in WORKS for side, one in sides.items()
        }
        taken = interleave(works, setting.turns)
        child.end()
        return taken, child.peak_memory_bytes


def _beside(size: Size, name: str, taken: Taken, peak: int) -> dict[str, Any]:
    row = _row(size, name, {work: spread(taken[f"{name} {work}"]) for work in WORKS})
    for work in WORKS:
        found = ratios(taken[f"{name} {work}"], taken[f"{BASELINE} {work}"])
        row[f"ratio_{work}"], row[f"ratio_{work}_low"], row[f"ratio_{work}_high"] = found
    base, own = (cost(spec_of(size, "float32", one).model) for one in (BASELINE, name))
    ratio_flops = own.flops_per_token / base.flops_per_token
    return {**row, "ratio_flops": ratio_flops, "rounds": len(taken[f"{name} train"]), "peak_memory_bytes": peak}


def _row(size: Size, name: str, seconds: Mapping[str, Spread]) -> dict[str, Any]:
    params = cost(spec_of(size, "float32", name).model).non_embedding_params
    times = {f"{work}_ms": 1000 * found.median for work, found in seconds.items()}
    return {"size": size.name, "variant": name, "non_embedding_params": params, **times}
