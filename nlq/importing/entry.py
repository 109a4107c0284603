"""One run of an import as its YAML has it, before any file of losses is read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nlq.core import plugin
from nlq.core.errors import Mistake, NlqError, nearest
from nlq.core.imported import BATCH, TRAIN, VAL, Losses
from nlq.core.reading import Point, Reading, Setting, known_settings, placed_settings, refuse_unknown
from nlq.importing.curve import LAST_STEP, MOST_NATS, Wanted
from nlq.importing.python_config import settings_of
from nlq.importing.sources import FORMATS, found

RUN_KEYS = (
    *("file", "final", "diverged", "format", "columns", "arm", "label", "seed", "point", "settings", "config"),
    *("non_embedding_params", "total_params"),
)
COLUMN_KEYS = ("step", VAL, TRAIN, BATCH, "run")
FINAL_KEYS = ("step", "val_loss", "train_loss")
USUAL_EVERY = 1000
"""Steps between the rows of the paper's tensors."""


@dataclass(frozen=True)
class Entry:
    """A run of the YAML; where `paths` are several, each is a seed of its own, counted up from `seed`.

    `settings` are all that were given, the point's included. `final` are losses that stand in the YAML itself.
    """

    at: tuple[Any, ...]
    arm: str
    label: str | None
    seed: int
    point: Mapping[str, Any]
    settings: Point
    paths: tuple[Path, ...]
    final: Losses
    kind: str | None
    wanted: Wanted
    non_embedding_params: int | None
    total_params: int | None


def entry(reading: Reading, index: int, shared: Point) -> Entry | None:
    """The run at an index, or None where something is wrong with it; the mistakes are gathered."""
    at, before = ("runs", index), len(reading.mistakes)
    node = reading.get(at, dict, "a mapping that names a run", {})
    refuse_unknown(reading, at, node, RUN_KEYS)
    point, own = _settings(reading, (*at, "point")), _settings(reading, (*at, "settings"))
    for name in point.keys() & own.keys():
        reading.mistakes.append(Mistake(name, "stands in point and in settings; keep one", own[name].position))
    settings = {**shared, **config(reading, at), **own, **point}
    one = Entry(
        at,
        _arm(reading, at),
        reading.get((*at, "label"), str, "text", None),
        _whole(reading, (*at, "seed"), 2**32 - 1) or 0,
        {name: setting.value for name, setting in point.items()},
        settings,
        tuple(_paths(reading, at)),
        _final(reading, at),
        _kind(reading, at),
        _wanted(reading, at, settings),
        _whole(reading, (*at, "non_embedding_params"), 10**15),
        _whole(reading, (*at, "total_params"), 10**15),
    )
    _one_source(reading, at, node)
    return one if len(reading.mistakes) == before else None


def config(reading: Reading, at: tuple[Any, ...]) -> Point:
    """The settings of the Python file that `config` names there, if any."""
    name = reading.get((*at, "config"), str, "the name of a Python file", None)
    if name is None:
        return {}
    try:
        path = found(reading.document.folder, name)[0]
    except NlqError as error:
        reading.wrong((*at, "config"), error.message, error.hint)
        return {}
    place = reading.document.at(*at, "config")
    return {setting: Setting(value, place) for setting, value in settings_of(path).items()}


def base(reading: Reading) -> Point:
    """The settings that all runs share."""
    return {**config(reading, ()), **_settings(reading, ("base",))}


def _settings(reading: Reading, at: tuple[Any, ...]) -> Point:
    node = reading.get(at, dict, "a mapping of settings", {})
    return known_settings(reading, placed_settings(reading, at, node))


def _arm(reading: Reading, at: tuple[Any, ...]) -> str:
    name = reading.get((*at, "arm"), object, "the name of an arm", "")
    if not isinstance(name, str | int | float) or not str(name).strip():
        reading.wrong((*at, "arm"), "every run needs the name of its arm", "arm: baseline")
    return str(name)


def _one_source(reading: Reading, at: tuple[Any, ...], node: Mapping[str, Any]) -> None:
    if "file" in node and "final" in node:
        reading.wrong((*at, "final"), "file and final are both given; keep one")
    if not {"file", "final", "diverged"} & node.keys():
        reading.wrong(at, "no losses", "file: curve.csv; or final: {step: 60000, val_loss: 2.9441}")
    for key in node:
        reading.refuse_null((*at, key))


def _paths(reading: Reading, at: tuple[Any, ...]) -> list[Path]:
    name = reading.get((*at, "file"), str, "the name of a file, a folder or a glob", None)
    try:
        return found(reading.document.folder, name) if name is not None else []
    except NlqError as error:
        reading.wrong((*at, "file"), error.message, error.hint)
        return []


def _final(reading: Reading, at: tuple[Any, ...]) -> Losses:
    node = reading.get((*at, "final"), dict, "a step and its loss", {})
    refuse_unknown(reading, (*at, "final"), node, FINAL_KEYS)
    if not node:
        return {}
    step = _whole(reading, (*at, "final", "step"), LAST_STEP)
    losses = {split: _loss(reading, (*at, "final", f"{split}_loss")) for split in (VAL, TRAIN)}
    if not step or losses[VAL] is None:
        reading.wrong((*at, "final"), "needs a step and val_loss", "final: {step: 60000, val_loss: 2.9441}")
    return {split: {step or 0: loss} for split, loss in losses.items() if loss is not None}


def _loss(reading: Reading, at: tuple[Any, ...]) -> float | None:
    value = reading.get(at, object, "a number", None)
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_NATS
    if value is not None and not (good and math.isfinite(value)):
        reading.wrong(at, f"must be a loss in nats a token, found {value!r}")
        return None
    return None if value is None else float(value)


def _whole(reading: Reading, at: tuple[Any, ...], most: int) -> int | None:
    value = reading.get(at, object, "a whole number", None)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most):
        reading.wrong(at, f"must be a whole number from 0 to {most:,}, found {value!r}")
        return None
    return value


def _kind(reading: Reading, at: tuple[Any, ...]) -> str | None:
    kind: str | None = reading.get((*at, "format"), str, "the name of a format", None)
    known = plugin.kinds(FORMATS)
    if kind is not None and kind not in known:
        reading.wrong((*at, "format"), f'no format "{kind}"', f"format: {nearest(kind, known)}")
    return kind


def _wanted(reading: Reading, at: tuple[Any, ...], settings: Point) -> Wanted:
    columns = {**_columns(reading, ()), **_columns(reading, at)}
    every = settings["train.eval_every"].value if "train.eval_every" in settings else USUAL_EVERY
    whole = isinstance(every, int | float) and every >= 1
    return Wanted(columns, int(every) if whole else USUAL_EVERY, _whole(reading, (*at, "diverged"), LAST_STEP))


def _columns(reading: Reading, at: tuple[Any, ...]) -> dict[str, str]:
    node = reading.get((*at, "columns"), dict, "a mapping such as {val: val_loss}", {})
    refuse_unknown(reading, (*at, "columns"), node, COLUMN_KEYS)
    for key, value in node.items():
        if not isinstance(value, str):
            reading.wrong((*at, "columns", key), f"must be the name of a column, found {value!r}")
    return {key: value for key, value in node.items() if isinstance(value, str)}
