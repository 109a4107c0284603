"""How often a run reads its training text: tokens are unique, or repeated (METHOD 4.8)."""

from nlq.core.run import RunRecord
from nlq.stats.selection import GridPoint, Trace


def passes(trace: Trace) -> float | None:
    """Tokens trained on up to where the loss is read, over those of the text; None where one is not known.

    Of disjoint windows, those that fill one are counted: an epoch ends with the last whole window.
    """
    run = trace.member.run
    text, batch = _text(run), run.spec.get("train", {}).get("batch_tokens")
    return trace.report_step * int(batch) / text if text and batch else None


def in_words(point: GridPoint) -> str:
    """As "tokens unique (0.42 of a pass)", "tokens repeated: 3.26 passes", or that it is not known."""
    found = passes(point.traces[0])
    if found is None:
        return "repetition of tokens not known"
    if at_random(point):
        return f"tokens drawn at random: {found:.2f} passes"
    return f"tokens repeated: {found:.2f} passes" if found > 1 else f"tokens unique ({found:.2g} of a pass)"


def at_random(point: GridPoint) -> bool:
    """Whether windows are drawn with replacement, so that tokens repeat before a pass is over."""
    return bool(point.traces[0].member.run.spec.get("data", {}).get("plan") == "paper")


def _text(run: RunRecord) -> int | None:
    data, context = run.spec.get("data", {}), run.spec.get("model", {}).get("context")
    if run.train_tokens is None or data.get("plan") == "paper" or not context:
        return run.train_tokens
    return int((run.train_tokens - 1) // context * context)
