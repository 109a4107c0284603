"""From a spec file to the runs of a sweep.

Order of expansion: arms as the file has them; for each arm its points (a grid's first axis varies slowest);
for each point the seeds. A run that an arm already has is not listed again.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nlq.core.document import Document
from nlq.core.errors import Mistake, NlqError, SpecError, nearest
from nlq.core.reading import (
    Point,
    Reading,
    Setting,
    flat,
    known_settings,
    placed,
    placed_settings,
    refuse_unknown,
    sweep_name,
)
from nlq.core.spec import RunSpec, mistakes_between, parse_run, spec_key

TOP_LEVEL = ("name", "baseline", "base", "arms", "grid", "points", "seeds")
ARM_KEYS = ("label", "grid", "points")
MOST_POINTS = 100_000


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep: the arm that it belongs to, its point on the grid, and its resolved spec."""

    arm: str
    label: str
    point: Mapping[str, Any]
    spec: RunSpec
    key: str


@dataclass(frozen=True)
class Sweep:
    """A named set of runs; `baseline` is the arm that the others are compared with."""

    name: str
    baseline: str
    source: str
    text: str
    runs: tuple[PlannedRun, ...]


@dataclass
class _Arm:
    name: str
    label: str
    settings: Point
    points: list[Point]


def replaced(sweep: Sweep, before: str | None) -> list[str]:
    """A remark where the sweep's name stood for the runs of another file, `before`, until now."""
    if before in (None, sweep.source):
        return []
    return [f'"{sweep.name}" was the sweep of {before} and is now that of {sweep.source}; the runs of both are kept']


def expand(document: Document, resolve: Callable[[RunSpec], RunSpec]) -> Sweep:
    """The sweep of a spec file. `resolve` fills what core cannot know (slots, vocabulary, digest of the data) and
    raises SpecError where a name is unknown. Raises SpecError with every mistake of the file."""
    plan = Reading(document)
    if not isinstance(document.data, dict):
        raise SpecError([Mistake("", "must be a mapping with arms")], document.source)
    refuse_unknown(plan, (), document.data, TOP_LEVEL)
    arms = _arms(plan)
    seeds = _seeds(plan)
    baseline = _baseline(plan, arms)
    name = sweep_name(plan)
    runs = list(_runs(plan, arms, seeds, resolve))
    if plan.mistakes:
        raise SpecError(plan.mistakes, document.source)
    return Sweep(name, baseline, document.source, document.text, tuple(runs))


def _seeds(plan: Reading) -> list[Any]:
    plan.refuse_null(("seeds",))
    seeds = plan.get(("seeds",), list, "a list such as [0, 1, 2]", [0])
    if not seeds:
        plan.wrong(("seeds",), "the list is empty", "seeds: [0, 1, 2]")
    for index, seed in enumerate(seeds):
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
            plan.wrong(("seeds", index), f"must be a whole number from 0 to 2³² − 1, found {seed!r}")
    return [seed for seed in seeds if isinstance(seed, int) and 0 <= seed < 2**32] or [0]


def _arms(plan: Reading) -> list[_Arm]:
    arms = plan.get(("arms",), dict, "a mapping of arm names to settings", {})
    if len({str(name) for name in arms}) < len(arms):
        plan.wrong(("arms",), "two arms have the same name")
    if not arms:
        plan.wrong(("arms",), "a sweep needs at least one arm", "arms: {baseline: {}}")
    base = _settings(plan, ("base",))
    shared = _points(plan, ())
    return [_arm(plan, name, base, shared) for name in arms]


def _arm(plan: Reading, name: Any, base: Point, shared: list[Point]) -> _Arm:
    path = ("arms", name)
    node = plan.get(path, dict, "a mapping of settings", {})
    own = "grid" in node or "points" in node
    label = plan.get((*path, "label"), str, "text", str(name))
    settings, points = _settings(plan, path), _points(plan, path) if own else shared
    for swept in {name for point in points for name in point} & settings.keys():
        hint = f"{swept}: leave it to the grid, or give the arm a grid of its own"
        message = "the arm sets what its grid varies"
        plan.mistakes.append(Mistake(swept, message, settings[swept].position, hint))
    return _Arm(str(name), label, {**base, **settings}, points)


def _settings(plan: Reading, path: tuple[Any, ...]) -> Point:
    node = plan.get(path, dict, "a mapping of settings", {})
    own = {key: value for key, value in node.items() if path[0] != "arms" or key not in ARM_KEYS}
    return known_settings(plan, placed_settings(plan, path, own))


def _points(plan: Reading, path: tuple[Any, ...]) -> list[Point]:
    """Points of the sweep (path is empty) or of an arm, from `points` or from `grid`."""
    for key in ("grid", "points"):
        plan.refuse_null((*path, key))
    listed = plan.get((*path, "points"), list, "a list of settings", None)
    grid = plan.get((*path, "grid"), dict, "a mapping of settings to lists", None)
    if listed is not None and grid is not None:
        plan.wrong((*path, "points"), "grid and points are both given; keep one")
    if listed is not None:
        return _listed_points(plan, (*path, "points"), listed)
    if grid is not None and not list(flat(path, grid)):
        plan.wrong((*path, "grid"), "the grid is empty", "grid: {optim.lr_max: [1e-3, 2e-3]}")
    return _grid_points(plan, (*path, "grid"), grid or {})


def _listed_points(plan: Reading, path: tuple[Any, ...], listed: list[Any]) -> list[Point]:
    if not listed:
        plan.wrong(path, "the list is empty")
    points = []
    for index, node in enumerate(listed):
        if isinstance(node, dict):
            points.append(known_settings(plan, placed_settings(plan, (*path, index), node)))
        else:
            plan.wrong((*path, index), f"must be a mapping of settings, found {node!r}")
    return points


def _grid_points(plan: Reading, path: tuple[Any, ...], grid: Mapping[Any, Any]) -> list[Point]:
    axes = [_axis(plan, name, place, values) for name, place, values in flat(path, grid)]
    if math.prod(len(axis) for axis in axes if axis) > MOST_POINTS:
        plan.wrong(path, f"more than {MOST_POINTS:,} points")
        return [{}]
    return [dict(combination) for combination in itertools.product(*filter(None, axes))]


def _axis(plan: Reading, name: str, path: tuple[Any, ...], values: Any) -> list[tuple[str, Setting]]:
    if not isinstance(values, list) or not values:
        what = "the list is empty" if values == [] else f"must be a list of values, found {values!r}"
        plan.wrong(path, what, f"{name}: [1e-3, 2e-3]")
        return []
    if not known_settings(plan, {name: Setting(values, plan.document.at(*path))}):
        return []
    return [(name, Setting(value, plan.document.at(*path, index))) for index, value in enumerate(values)]


def _baseline(plan: Reading, arms: list[_Arm]) -> str:
    names = [arm.name for arm in arms]
    default = "baseline" if "baseline" in names or not names else names[0]
    baseline = str(plan.document.data.get("baseline", default))
    if names and baseline not in names:
        plan.wrong(("baseline",), f'no arm is named "{baseline}"', nearest(baseline, names))
    return baseline


def _runs(
    plan: Reading, arms: list[_Arm], seeds: list[Any], resolve: Callable[[RunSpec], RunSpec]
) -> Iterator[PlannedRun]:
    seen = set()
    for arm in arms:
        for point, seed in itertools.product(arm.points, seeds):
            spec = _resolved(plan, arm, {**arm.settings, **point}, seed, resolve)
            if spec is None or (arm.name, spec_key(spec)) in seen:
                continue
            seen.add((arm.name, spec_key(spec)))
            values = {name: setting.value for name, setting in point.items()}
            yield PlannedRun(arm.name, arm.label, values, spec, spec_key(spec))


def _resolved(
    plan: Reading, arm: _Arm, settings: Point, seed: int, resolve: Callable[[RunSpec], RunSpec]
) -> RunSpec | None:
    spec, mistakes = parse_run({name: s.value for name, s in settings.items()}, seed)
    if spec is not None:
        mistakes = list(mistakes_between(spec))
    if spec is None:
        wrong = {m.path for m in mistakes}
        spec, _ = parse_run({n: s.value for n, s in settings.items() if n not in wrong}, seed)
    resolved = None
    try:
        resolved = resolve(spec) if spec is not None else None
    except SpecError as error:
        mistakes += error.mistakes
    except NlqError as error:
        mistakes.append(Mistake("", f'arm "{arm.name}": {error.message}', hint=error.hint))
    plan.mistakes += [placed(m, settings) for m in mistakes]
    return None if mistakes else resolved
