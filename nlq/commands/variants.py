"""`nlq variants`: the named systems that model.variant may be."""

from typing import Any

from rich.table import Table

from nlq.commands._console import console, print_json
from nlq.core.spec import ModelSpec, RunSpec
from nlq.models.variants import Variant, variant

PAPER_SHAPE = ModelSpec(layers=12, heads=12, width=768, context=1024, vocab=50304)
"""The paper's GPT-2 small, at which sizes are shown."""


def variants(names: list[str], *, counts: bool, as_json: bool) -> None:
    """What stands in each slot, and the exact size at the paper's shape with `counts` (imports PyTorch)."""
    rows = [_row(name, variant(name), counts) for name in names]
    if as_json:
        print_json(rows)
        return
    table = Table(title="model.variant", title_justify="left")
    table.add_column("name", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    if counts:
        table.add_column("N.E. params at 12 × 768", justify="right")
    for row in rows:
        table.add_row(row["name"], row["summary"], *([f"{row['non_embedding_params']:,}"] if counts else []))
    console().print(table)


def _row(name: str, one: Variant, counts: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "summary": one.summary, "slots": one.slots}
    if counts:
        from nlq.models.build import resolve
        from nlq.models.cost import cost

        spec = resolve(RunSpec(model=PAPER_SHAPE.model_copy(update={"variant": name})))
        row["non_embedding_params"] = cost(spec.model).non_embedding_params
    return row
