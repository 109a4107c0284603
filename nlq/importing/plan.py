"""From a YAML file that describes runs made elsewhere to runs that can be written."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from nlq.core.document import Document
from nlq.core.errors import Mistake, SpecError, nearest
from nlq.core.imported import VAL, Imported, Losses
from nlq.core.reading import Reading, placed, refuse_unknown, sweep_name
from nlq.core.run import IMPORTED
from nlq.core.spec import RunSpec, dotted, mistakes_between, nested, parse_run
from nlq.core.sweep import PlannedRun, Sweep
from nlq.importing.entry import Entry, base, entry
from nlq.importing.sources import Source, read

TOP_LEVEL = ("name", "baseline", "base", "config", "columns", "runs")
SHAPE = ("model.layers", "model.heads", "model.width", "model.context", "model.vocab")
"""What the size of a model is counted from; a spec's defaults are no knowledge about somebody else's run."""


OWN = ("data.corpus", "data.sha256")
"""Settings that mark a run as imported."""


class Counts(NamedTuple):
    """Sizes of a model, None where they are not known."""

    non_embedding_params: int | None = None
    total_params: int | None = None
    flops_per_token: int | None = None


class Plan(NamedTuple):
    """A sweep, and what is known of its runs by spec key."""

    sweep: Sweep
    found: dict[str, Imported]


def plan(document: Document, count: Callable[[RunSpec], Counts]) -> Plan:
    """The runs that a YAML file describes, their files read. `count` counts a model whose shape is given.

    Raises SpecError with all mistakes of the YAML, else SpecError or NlqError for the first file that is not right.
    """
    reading = Reading(document)
    if not isinstance(document.data, dict):
        raise SpecError([Mistake("", "must be a mapping with runs")], document.source)
    refuse_unknown(reading, (), document.data, TOP_LEVEL)
    name, entries = sweep_name(reading), _entries(reading)
    baseline = _baseline(reading, entries)
    _raise(reading)
    runs = [run for one in entries for run in _runs(reading, one, _labels(entries), count)]
    _refuse_twins(reading, runs)
    _raise(reading)
    planned = tuple(run for _, run, _ in runs)
    return Plan(
        Sweep(name, baseline, document.source, document.text, planned), {run.key: found for _, run, found in runs}
    )


Run = tuple[Entry, PlannedRun, Imported]


def _raise(reading: Reading) -> None:
    if reading.mistakes:
        raise SpecError(reading.mistakes, reading.document.source)


def _entries(reading: Reading) -> list[Entry]:
    nodes = reading.get(("runs",), list, "a list of runs", [])
    if not nodes:
        hint = "runs: [{file: curve.csv, arm: baseline, point: {optim.lr_max: 6e-4}}]"
        reading.wrong(("runs",), "an import needs at least one run", hint)
    shared = base(reading)
    return [one for index in range(len(nodes)) if (one := entry(reading, index, shared))]


def _labels(entries: list[Entry]) -> dict[str, str]:
    """The first label of each arm: its other runs need not repeat it."""
    labels: dict[str, str] = {}
    for one in entries:
        if one.label is not None:
            labels.setdefault(one.arm, one.label)
    return labels


def _baseline(reading: Reading, entries: list[Entry]) -> str:
    arms = list(dict.fromkeys(one.arm for one in entries))
    reading.refuse_null(("baseline",))
    default = "baseline" if "baseline" in arms or not arms else arms[0]
    baseline = str(reading.document.data.get("baseline", default))
    if arms and baseline not in arms:
        reading.wrong(("baseline",), f'no run is of the arm "{baseline}"', nearest(baseline, arms))
    return baseline


def _runs(reading: Reading, one: Entry, labels: Mapping[str, str], count: Callable[[RunSpec], Counts]) -> Iterator[Run]:
    label = one.label or labels.get(one.arm, one.arm)
    for offset, source in enumerate(_sources(reading.document, one)):
        found = _imported(reading, one, one.seed + offset, source, count)
        if found is not None:
            spec, run = found
            yield one, PlannedRun(one.arm, label, one.point, spec, _digest(run.spec)), run


def _sources(document: Document, one: Entry) -> Iterator[Source]:
    if not one.paths:
        yield Source(Path(document.source), one.final, hashlib.sha256(document.text.encode()).hexdigest())
    for path in one.paths:
        yield read(path, one.kind, one.wanted)


def _imported(
    reading: Reading, one: Entry, seed: int, source: Source, count: Callable[[RunSpec], Counts]
) -> tuple[RunSpec, Imported] | None:
    """A run with its settings checked, or None and the mistakes gathered."""
    settings = _completed(one, source.losses)
    spec, mistakes = parse_run(settings, seed)
    if spec is not None:
        mistakes = [*_misfits(spec, settings), *_ends(one, spec, source.losses)]
    reading.mistakes += [_placed(reading, one, mistake) for mistake in mistakes]
    if spec is None or mistakes:
        return None
    path = os.fsencode(source.path.resolve()).decode("utf-8", "replace")
    try:
        counts = _counts(one, spec, settings, count)
    except SpecError as error:
        reading.mistakes += [_placed(reading, one, mistake) for mistake in error.mistakes]
        return None
    run = Imported({}, source.losses, spec.train.steps, one.wanted.diverged, path, source.sha256, *counts)
    return spec, replace(run, spec=_known(spec, settings, run))


def _placed(reading: Reading, one: Entry, mistake: Mistake) -> Mistake:
    """With the place of the setting, else that of the run's first line."""
    found = placed(mistake, one.settings)
    return found if found.position else replace(found, position=reading.document.at(*one.at))


def _completed(one: Entry, losses: Losses) -> dict[str, Any]:
    """The settings by name, with what the losses themselves say: where the curve ends."""
    settings = {name: setting.value for name, setting in one.settings.items()}
    last = max(losses.get(VAL, {}), default=0)
    settings.setdefault("train.steps", max(last, one.wanted.diverged or 0))
    if last:
        settings.setdefault("train.report_step", last)
    if "optim.lr_min_ratio" in settings and "optim.lr_max" in settings:
        ratio, peak = settings["optim.lr_min_ratio"], settings["optim.lr_max"]
        if isinstance(ratio, int | float) and isinstance(peak, int | float):
            settings.setdefault("optim.lr_min", ratio * peak)
    return settings


def _misfits(spec: RunSpec, settings: Mapping[str, Any]) -> Iterator[Mistake]:
    """Of what was given: a spec's defaults say nothing about a run made elsewhere."""
    yield from (Mistake(name, "an import sets this itself", hint="leave it out") for name in OWN if name in settings)
    whole_shape = all(name in settings for name in SHAPE)
    for mistake in mistakes_between(spec):
        group = mistake.path.split(".")[0]
        both_minima = mistake.path == "optim.lr_min_ratio"
        if mistake.path in settings and not both_minima and (group == "optim" or (group == "model" and whole_shape)):
            yield mistake


def _ends(one: Entry, spec: RunSpec, losses: Losses) -> Iterator[Mistake]:
    """A finished run has a curve that reaches its last step, but for less than one interval of evaluations."""
    steps, curve = spec.train.steps, sorted(losses.get(VAL, {}))
    if one.wanted.diverged is not None:
        if one.wanted.diverged > steps:
            yield Mistake("train.steps", f"{steps:,} is before the step {one.wanted.diverged:,} where it diverged")
        return
    last, interval = curve[-1], max((b - a for a, b in pairwise(curve)), default=steps)
    if last > steps:
        yield Mistake("train.steps", f"the curve goes on to step {last:,}", hint=f"train.steps: {last}")
    if last + interval <= steps:
        message = f"the curve ends at step {last:,} of {steps:,}: not finished"
        yield Mistake("train.steps", message, hint=f"where it diverged: diverged: {last}")
    if spec.report_step not in curve:
        near = min(curve, key=lambda step: abs(step - spec.report_step))
        message = f"nothing was evaluated at step {spec.report_step:,}"
        yield Mistake("train.report_step", message, hint=f"train.report_step: {near}")


def _counts(one: Entry, spec: RunSpec, settings: Mapping[str, Any], count: Callable[[RunSpec], Counts]) -> Counts:
    """As given; counted where nothing was given but the whole shape."""
    if one.non_embedding_params is not None or one.total_params is not None:
        return Counts(one.non_embedding_params, one.total_params)
    return count(spec) if all(name in settings for name in SHAPE) else Counts()


def _known(spec: RunSpec, settings: Mapping[str, Any], run: Imported) -> dict[str, Any]:
    """The settings that were given, as a spec has them; `data.sha256` is the digest of all that the run brings."""
    values = dotted(spec.model_dump(mode="json"))
    names = [*settings, *(["model.variant"] if run.flops_per_token is not None else [])]  # it was counted as that
    given = {n: v for n, v in values.items() if any(n == name or n.startswith(f"{name}.") for name in names)}
    content = {split: list(curve.items()) for split, curve in run.losses.items()}
    counts = (run.non_embedding_params, run.total_params, run.flops_per_token)
    sha256 = _digest([content, run.diverged_step, *counts])
    return nested({**given, "data.corpus": IMPORTED, "data.sha256": sha256, "seed": spec.seed})


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _refuse_twins(reading: Reading, runs: list[Run]) -> None:
    """Two runs of one arm, point and seed would count as one."""
    seen = set()
    for one, run, _ in runs:
        place = (run.arm, json.dumps(dict(run.point), sort_keys=True), run.spec.seed)
        if place in seen:
            message = f'a second run of arm "{run.arm}" with this point and seed {run.spec.seed}'
            reading.wrong(one.at, message, "point: {optim.lr_max: …}; or seed: 1")
        seen.add(place)
