"""The named systems of variants.yaml."""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from nlq.core.document import parse
from nlq.core.errors import Mistake, SpecError, nearest


class Variant(NamedTuple):
    """One named system: what it is, and the components that it puts into slots."""

    summary: str
    slots: dict[str, dict[str, Any]]


@cache
def variants() -> dict[str, Variant]:
    """All named systems, in the order of the file."""
    text = files("nlq.models").joinpath("variants.yaml").read_text(encoding="utf-8")
    systems = parse(text, "variants.yaml", Path()).data
    return {name: Variant(entry["summary"], entry["slots"]) for name, entry in systems.items()}


def variant(name: str) -> Variant:
    """One named system with the baseline's components in the slots that it leaves open. Raises SpecError."""
    if name not in variants():
        raise SpecError(
            [Mistake("model.variant", f'no variant "{name}"', hint=f"model.variant: {nearest(name, variants())}")]
        )
    own = variants()[name]
    base = variants()["baseline"].slots
    return Variant(own.summary, {slot: {**base[slot], **own.slots.get(slot, {})} for slot in base})
