"""What figures say beside their curves: where they come from, and what became of a point."""

from nlq.stats.origin import origin, remarks, where
from nlq.stats.printing import count
from nlq.stats.selection import GridPoint, Selection


def footer(selection: Selection, banded: bool) -> str:
    """Lines for below a figure: origin, what is compared where, limits of the comparison, and what the band is."""
    lines = [origin(selection), where(selection), *remarks(selection)]
    if banded:
        lines.append("bands: smallest to largest over seeds")
    return "\n".join(lines)


def suffix(selection: Selection, point: GridPoint) -> str:
    """What a legend adds to a label: that seeds diverged, that runs go on, or that nothing is evaluated."""
    if point.diverged:
        at = f" at step {point.diverged_step:,}" if point.diverged_step is not None else ""
        return (
            f" (diverged{at})"
            if len(point.traces) == 1
            else f" ({len(point.diverged)} of {len(point.traces)} diverged)"
        )
    if not any(trace.losses.get(selection.at.show_split) for trace in point.traces):
        return f" ({point.traces[0].member.run.state}, no evaluation)"
    missing = [t.member.run for t in point.traces if not t.finished]
    if not missing:
        return ""
    return (
        f" ({missing[0].state})" if len(point.traces) == 1 else f" ({len(missing)} of {len(point.traces)} unfinished)"
    )


def params(point: GridPoint) -> str:
    """The point's non-embedding parameters ("84.95M"), a question mark where unknown."""
    known = (trace.member.run.non_embedding_params for trace in point.traces)
    return next((count(n) for n in known if n is not None), "?")
