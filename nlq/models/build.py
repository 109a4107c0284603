"""From a spec to a model: fill the slots, check every name, build, draw the initial weights."""

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from pydantic import ValidationError
from torch import nn

from nlq.core import plugin
from nlq.core.errors import Mistake, NlqError, SpecError, nearest
from nlq.core.spec import SLOTS, ModelSpec, RunSpec, field_message
from nlq.models.block import Attention, Block
from nlq.models.slots import PACKAGES, ComponentOptions, SlotShape
from nlq.models.transformer import Transformer
from nlq.models.variants import variant

PROJECTIONS = ("query", "key", "value", "output")


def resolve(spec: RunSpec) -> RunSpec:
    """The spec with every slot's component and options filled in. Raises SpecError with all mistakes of the model.

    `model.vocab` must be known. The model is built once without memory, so that what does not fit is found here.
    """
    slots: dict[str, Any] = {}
    mistakes: list[Mistake] = []
    named = variant(spec.model.variant).slots
    for slot in SLOTS:
        try:
            slots[slot] = _options(slot, named[slot], spec.model).model_dump()
        except SpecError as error:
            mistakes += error.mistakes
    if not mistakes:
        resolved = spec.resolved(model=slots)
        mistakes += _misfits(resolved.model)
    if mistakes:
        raise SpecError(mistakes)
    return resolved


def build(spec: ModelSpec) -> Transformer:
    """The model of a resolved spec, its weights not yet drawn."""
    blocks = [_block(spec) for _ in range(spec.layers)]
    positions = _component("positions", spec)
    return Transformer(spec.vocab or 0, spec.width, positions, blocks, spec.tied)


def build_on_meta(spec: ModelSpec) -> Transformer:
    """As `build`, without allocating anything: for counting."""
    with torch.device("meta"):
        return build(spec)


@torch.no_grad()
def initialise(model: nn.Module, seed: int) -> None:
    """Draw every matrix from N(0, init_std²), as float32 on the CPU.

    Each tensor has its own stream, named by its place: two arms of one seed share the weights that both have.
    Gains keep the value that they were built with.
    """
    for name, module in model.named_modules():
        std = getattr(module, "init_std", None)
        if std is not None:
            weight = module.get_parameter("weight")
            draw = torch.empty(weight.shape, dtype=torch.float32)
            draw.normal_(0.0, std, generator=torch.Generator().manual_seed(_stream(seed, name)))
            weight.copy_(draw)


def _stream(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest(), "little") >> 1


def _options(slot: str, named: dict[str, Any], spec: ModelSpec) -> ComponentOptions:
    """The options of one slot: the variant's, unless the spec puts another kind there, then the spec's."""
    given = getattr(spec, slot)
    kind = given.get("kind", named["kind"])
    settings = {**(named if kind == named["kind"] else {}), **given, "kind": kind}
    if kind not in plugin.kinds(PACKAGES[slot]):
        known = plugin.kinds(PACKAGES[slot])
        raise SpecError(
            [Mistake(f"model.{slot}.kind", f'no kind "{kind}"', hint=f"model.{slot}: {nearest(kind, known)}")]
        )
    options = plugin.load(PACKAGES[slot], kind).Options
    try:
        valid: ComponentOptions = options.model_validate(settings)
    except ValidationError as error:
        raise SpecError(_option_mistakes(slot, kind, set(options.model_fields), error)) from error
    return valid.resolved(_shape(slot, spec))


def _option_mistakes(slot: str, kind: str, known: set[str], error: ValidationError) -> Iterator[Mistake]:
    for entry in error.errors():
        name = ".".join(map(str, entry["loc"]))
        path = f"model.{slot}.{name}"
        if entry["type"] == "extra_forbidden":
            yield Mistake(path, f"{kind} has no such option", hint=f"{path}: {nearest(name, known)}")
        else:
            yield Mistake(path, field_message(dict(entry)))


def _misfits(spec: ModelSpec) -> Iterator[Mistake]:
    """Components that cannot stand in their slot."""
    for slot in SLOTS:
        try:
            with torch.device("meta"):
                _component(slot, spec)
        except NlqError as error:
            yield Mistake(f"model.{slot}", error.message, hint=error.hint)
        except ValidationError as error:  # a default that was computed from other settings
            kind, known = getattr(spec, slot)["kind"], set(getattr(spec, slot))
            yield from _option_mistakes(slot, kind, known, error)


def _block(spec: ModelSpec) -> Block:
    projections = {slot: _component(slot, spec) for slot in PROJECTIONS}
    attention = Attention(projections, _component("attention", spec), spec.heads, spec.kv_heads or spec.heads)
    return Block(spec.width, attention, _component("mlp", spec))


def _component(slot: str, spec: ModelSpec) -> nn.Module:
    settings = getattr(spec, slot)
    module = plugin.load(PACKAGES[slot], settings["kind"])
    built: nn.Module = module.build(module.Options.model_validate(settings), _shape(slot, spec))
    return built


def _shape(slot: str, spec: ModelSpec) -> SlotShape:
    kv_heads = spec.kv_heads or spec.heads
    grouped = kv_heads if slot in ("key", "value") else spec.heads
    writes_residual = slot in ("output", "mlp")
    return SlotShape(
        width_in=spec.width,
        width_out=grouped * (spec.width // spec.heads),
        heads=spec.heads,
        kv_heads=kv_heads,
        context=spec.context,
        residual_scale=(2 * spec.layers) ** -0.5 if writes_residual else 1.0,
    )
