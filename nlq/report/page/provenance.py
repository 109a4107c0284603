"""Which runs stand behind a number, and what is known of them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nlq.core.run import Provenance
from nlq.stats.printing import DASH, plural, settings
from nlq.stats.selection import GridPoint, Selection, Trace

Facts = tuple[tuple[str, str], ...]
"""Names and values, in the order in which a reader asks for them."""


class Run(NamedTuple):
    """One run of the sweep: what identifies it, its loss, what it read, where it ran, and its whole resolved spec."""

    run_id: str
    title: str
    loss: str
    facts: Facts
    spec: Mapping[str, Any]


def runs(selection: Selection) -> tuple[Run, ...]:
    """Every run of the sweep, in its order."""
    return tuple(_run(selection, p, t) for points in selection.points.values() for p in points for t in p.traces)


def measured(selection: Selection) -> Facts:
    """How the numbers were measured: each fact with its values over all runs, counted where they differ."""
    every = [dict(_facts(selection, trace)) for trace in selection.traces()]
    names = [name for name in every[0] if name not in OF_ONE_RUN]
    seeds = sorted({trace.seed for trace in selection.traces()})
    shared = tuple((name, _values([facts[name] for facts in every])) for name in names)
    return (("seeds", ", ".join(map(str, seeds))), *shared)


def run_ids(points: Sequence[GridPoint], seeds: Sequence[int] | None = None) -> tuple[str, ...]:
    """Ids of the points' runs, of some seeds or of all."""
    return tuple(t.member.run.run_id for p in points for t in p.traces if seeds is None or t.seed in seeds)


SHOWN_LOSS, CHOOSING_LOSS = "loss at the compared step", "loss that chooses the point"
DATA = "training data hash"
OF_ONE_RUN = ("run", "spec key", "seed", "state", SHOWN_LOSS, CHOOSING_LOSS, DATA)
"""Facts that differ from run to run by their nature."""

MOST_VALUES = 6
"""So many different values of a fact are named."""


def _run(selection: Selection, point: GridPoint, trace: Trace) -> Run:
    where = settings(point.settings)
    title = f"{point.label}{', ' if where else ''}{where}, seed {trace.seed}"
    loss = _loss(trace, selection.at.show_split, selection.at.step)
    return Run(trace.member.run.run_id, title, loss, tuple(_facts(selection, trace)), trace.member.run.spec)


def _facts(selection: Selection, trace: Trace) -> Iterator[tuple[str, str]]:
    run, at = trace.member.run, selection.at
    data, windows = trace.hashes.get(at.show_split, {}).get(at.step or 0, (None, None))
    diverged = f" at step {run.diverged_step:,}" if run.diverged_step is not None else ""
    yield "run", run.run_id
    yield "spec key", run.spec_key
    yield "seed", str(trace.seed)
    yield "state", f"{run.state}{diverged}, {run.steps_done:,} of {plural(run.steps_planned, 'step')}"
    yield SHOWN_LOSS, _loss(trace, at.show_split, at.step)
    yield CHOOSING_LOSS, _loss(trace, at.select_split, at.step)
    yield DATA, data or DASH
    yield "windows hash", windows or DASH
    yield "prepared corpus", _corpus(trace)
    yield from _place(run.provenance)
    yield "imported from", f"{run.imported_from}, sha256 {run.imported_sha256}" if run.imported else DASH


def _place(known: Provenance | None) -> Iterator[tuple[str, str]]:
    yield "commit", _commit(known)
    yield "source digest", (known.source_sha256 if known else None) or DASH
    yield "versions", _versions(known) if known else DASH
    yield "machine", f"{known.host}, {known.device}, {plural(known.threads, 'thread')}" if known else DASH


def _corpus(trace: Trace) -> str:
    """An imported run names no corpus: its spec has the digest of the file that it was read from."""
    run = trace.member.run
    return DASH if run.imported else str(run.spec.get("data", {}).get("sha256") or DASH)


def _versions(known: Provenance) -> str:
    return f"nlq {known.nlq_version}, PyTorch {known.torch_version or DASH}, Python {known.python_version or DASH}"


def _commit(known: Provenance | None) -> str:
    if known is None or known.git_commit is None:
        return DASH
    return f"{known.git_commit}{' with uncommitted changes' if known.git_dirty else ''}"


def _loss(trace: Trace, split: str, step: int | None) -> str:
    """In full, as the database has it."""
    found = trace.loss_at(split, step)
    if found is None:
        return DASH
    if trace.diverged or step is None:
        return "diverged (+∞)"
    return f"{found!r} nats, split {split}, step {step:,}"


def _values(values: Sequence[str]) -> str:
    counts = Counter(values)
    if len(counts) == 1:
        return values[0]
    named = [f"{value} ({plural(count, 'run')})" for value, count in counts.most_common(MOST_VALUES)]
    return "; ".join(named) + (f"; and {len(counts) - MOST_VALUES} more" if len(counts) > MOST_VALUES else "")
