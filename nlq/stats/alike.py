"""Which points are the baseline but for its size or the length of its training."""

from collections.abc import Mapping
from typing import Any

from nlq.stats.selection import GridPoint

SIZES = ("layers", "heads", "kv_heads", "width")
"""Settings of a model that make it another size."""
MLP_SIZES = ("ratio", "hidden")


def other_size(point: GridPoint, base: GridPoint) -> bool:
    """Whether the models differ in size alone."""
    return _shape(point) == _shape(base)


def other_length(point: GridPoint, base: GridPoint) -> bool:
    """Whether a point is the baseline but for the length of its training and what a length tunes anew."""
    same_model = _model(point) == _model(base)
    return point.arm == base.arm or (not point.imported and same_model and _training(point) == _training(base))


def other_size_or_length(point: GridPoint, base: GridPoint) -> bool:
    """Whether a point is the baseline but for its size and the length of its training."""
    return other_length(point, base) or (other_size(point, base) and _training(point) == _training(base))


def _spec(point: GridPoint) -> Mapping[str, Any]:
    return point.traces[0].member.run.spec


def _model(point: GridPoint) -> dict[str, Any]:
    """The model's settings. A variant's name says nothing beside the slots that it fills; of an imported run, whose
    slots nobody filled, it is all that is known."""
    model = dict(_spec(point).get("model", {}))
    return {name: value for name, value in model.items() if name != "variant" or "query" not in model}


def _shape(point: GridPoint) -> dict[str, Any]:
    """The model's settings but for its size."""
    model = _model(point)
    mlp = {name: value for name, value in model.get("mlp", {}).items() if name not in MLP_SIZES}
    return {name: value for name, value in (model | {"mlp": mlp}).items() if name not in SIZES}


def _training(point: GridPoint) -> tuple[Any, ...]:
    spec = _spec(point)
    optim, train = spec.get("optim", {}), spec.get("train", {})
    kind = optim.get("kind", "adamw"), optim.get("schedule")
    return spec.get("data"), kind, train.get("batch_tokens"), train.get("precision")
