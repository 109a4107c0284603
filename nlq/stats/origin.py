"""Where the numbers of a table or figure come from, and what a reader must know before trusting them."""

from collections import Counter
from collections.abc import Iterable, Iterator

from nlq.core.run import Provenance, State
from nlq.stats.compare import UNKNOWN, compare
from nlq.stats.passes import passes
from nlq.stats.printing import plural
from nlq.stats.selection import Selection
from nlq.stats.tuning import RATE, budget, optimum

UNFINISHED = (State.QUEUED, State.RUNNING, State.FAILED, State.CANCELLED, State.LOST)


def origin(selection: Selection) -> str:
    """One line: the sweep, the number of its runs, the commits and the seeds."""
    runs = selection.traces()
    commits = sorted({_commit(p) for p in _provenances(selection)}) or ["unknown"]
    seeds = sorted({t.seed for t in runs})
    return (
        f"sweep {selection.sweep.name} · {plural(len(runs), 'run')} · {_listed('commit', commits)} · "
        f"{_listed('seed', seeds)}"
    )


def where(selection: Selection) -> str:
    """One line: the step and the splits that are compared."""
    step, chosen, shown = selection.at
    if step is None:
        return "no step has been evaluated by every finished run"
    picked = f"; each arm's best point chosen on {chosen}" if _has_choice(selection) else ""
    return f"validation loss at step {step:,}, split {shown}{picked}"


def remarks(selection: Selection) -> list[str]:
    """What limits the comparison, one sentence each; empty when nothing does."""
    sources = (_preview, _unfinished, _shorter, _single_seed, _unclear, _edges, _unmatched, _imported, _unpaired)
    return [line for source in (*sources, _repeated, _budgets, _mixed) for line in source(selection)]


def _listed(noun: str, values: Iterable[object]) -> str:
    texts = [str(value) for value in values]
    shown = ", ".join(texts[:6]) + (", …" if len(texts) > 6 else "")
    return f"{noun}{'s' if len(texts) > 1 else ''} {shown}"


def _commit(provenance: Provenance) -> str:
    commit = (provenance.git_commit or "unknown")[:7]
    return f"{commit}+changes" if provenance.git_dirty else commit


def _provenances(selection: Selection) -> list[Provenance]:
    return [p for t in selection.traces() if (p := t.member.run.provenance) is not None]


def _has_choice(selection: Selection) -> bool:
    return any(len(points) > 1 for points in selection.points.values())


def _preview(selection: Selection) -> Iterator[str]:
    if selection.preview:
        yield "no run is finished: a preview, read before the learning rate has decayed"


def _unfinished(selection: Selection) -> Iterator[str]:
    counts = Counter(t.member.run.state for t in selection.traces())
    parts = [f"{counts[state]} {state}" for state in UNFINISHED if counts[state]]
    if parts:
        yield f"without a result: {sum(counts[s] for s in UNFINISHED)} of {counts.total()} runs ({', '.join(parts)})"


def _shorter(selection: Selection) -> Iterator[str]:
    step = selection.at.step
    if step is not None and step < selection.report_step and not selection.preview:
        ends = {t.member.label for t in selection.traces() if t.report_step == step}
        whose = f", where {', '.join(sorted(ends))} ends while others have not decayed" if ends else ""
        yield f"curves differ in length: compared at step {step:,}, the last that all have{whose}"


def _single_seed(selection: Selection) -> Iterator[str]:
    others = list(_others(selection))
    deltas = {arm: compare(selection, selection.best[arm]).delta for arm in others}
    alone = [arm for arm, delta in deltas.items() if delta and delta.n == 1]
    if alone or len({t.seed for t in selection.traces()}) == 1:
        whose = f"{', '.join(alone)}: " if len(alone) < len([d for d in deltas.values() if d]) else ""
        yield f"{whose}one seed: compares two checkpoints, not two architectures"


def _unclear(selection: Selection) -> Iterator[str]:
    """A difference may stand in bold and mean nothing."""
    found = (compare(selection, selection.best[arm]).delta for arm in _others(selection))
    intervals = [delta.interval for delta in found if delta and delta.interval]
    if intervals and all(low <= 0 <= high for low, high in intervals):
        yield "no difference is clear of 0: every 95 % interval over seeds holds it"


def _edges(selection: Selection) -> Iterator[str]:
    """A best learning rate at the end of its grid says that the arm is not tuned."""
    at_edge = [best.label for arm, best in selection.best.items() if RATE in optimum(selection, arm).axes]
    if at_edge:
        yield f"best η_max at the edge of the grid, so not tuned: {', '.join(at_edge)}"


def _others(selection: Selection) -> Iterator[str]:
    return (arm for arm in selection.best if arm != selection.sweep.baseline)


def _unmatched(selection: Selection) -> Iterator[str]:
    """Every point counts, shown or not: one that read other batches is no control of the others either."""
    points = ((arm, point) for arm, of_arm in selection.points.items() for point in of_arm)
    arms = dict.fromkeys(arm for arm, point in points if compare(selection, point).matched is False)
    if arms:
        yield f"unmatched data: {', '.join(arms)} did not read the baseline's batches, or other windows were evaluated"


def _imported(selection: Selection) -> Iterator[str]:
    arms = [arm for arm, points in selection.points.items() if any(point.imported for point in points)]
    if arms:
        whose = f" ({', '.join(arms)})" if len(arms) < len(selection.points) else ""
        yield f"imported{whose}: {UNKNOWN}"


def _unpaired(selection: Selection) -> Iterator[str]:
    base = selection.shown_losses(selection.reference)
    for arm in _others(selection):
        own = selection.shown_losses(selection.best[arm])
        common = base.keys() & own.keys()
        if base and own and not common:
            yield f"{arm}: no seed in common with the baseline, so no difference"
        elif common and len(common) < len(own):
            yield f"{arm}: differences over the {plural(len(common), 'seed')} that the baseline has too"


def _repeated(selection: Selection) -> Iterator[str]:
    """Tokens that are read again teach less than new ones."""
    found = {arm: times for arm, p in selection.best.items() if (times := passes(p.traces[0])) and times > 1}
    if found:
        texts = dict.fromkeys(f"{times:.2f}" for times in found.values())
        whose = f" ({', '.join(found)})" if len(found) < len(selection.best) else ""
        yield f"tokens repeated: {', '.join(texts)} passes over the training text{whose}"


def _budgets(selection: Selection) -> Iterator[str]:
    budgets: dict[str, list[str]] = {}
    for arm, points in selection.points.items():
        budgets.setdefault(str(budget(points)), []).append(arm)
    grids = {frozenset(repr(sorted(p.settings.items())) for p in ps) for ps in selection.points.values()}
    if len(budgets) == 1 and len(grids) > 1:
        yield "arms have different points of the same number"
    if len(budgets) > 1:
        yield "budgets differ: " + "; ".join(f"{', '.join(arms)} {size}" for size, arms in budgets.items())


def _mixed(selection: Selection) -> Iterator[str]:
    found = _provenances(selection)
    columns = {
        "commits": Counter(_commit(p) for p in found),
        "code states": Counter((p.source_sha256 or "unknown")[:7] for p in found),
        "nlq versions": Counter(p.nlq_version for p in found),
        "torch versions": Counter(p.torch_version for p in found),
        "devices": Counter(p.device for p in found),
        "thread counts": Counter(str(p.threads) for p in found),
    }
    for what, counts in columns.items():
        if len(counts) > 1:
            runs = ", ".join(f"{value} ({plural(count, 'run')})" for value, count in counts.items())
            yield f"runs mix {what}: {runs}"
    dirty = sum(bool(p.git_dirty) for p in found)
    if dirty:
        yield f"{plural(dirty, 'run')} of {len(found)} came from a working tree with uncommitted changes"
