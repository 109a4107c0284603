"""`nlq data ls`: the corpora that have been prepared."""

import json
from pathlib import Path

from rich.table import Table

from nlq.commands._console import console, print_json
from nlq.data.prepare import listing
from nlq.stats.printing import count


def data_ls(cache: Path, *, as_json: bool) -> None:
    """One line a prepared corpus: source, tokenizer, tokens and documents of each split, digest."""
    manifests = listing(cache)
    if as_json:
        print_json([json.loads(manifest.to_json()) for manifest in manifests])
        return
    out = console()
    table = Table(title=f"prepared corpora in {cache}", title_justify="left")
    for name in ("corpus", "source", "tokenizer"):
        table.add_column(name, overflow="fold")
    for name in ("train", "select", "confirm", "documents", "sha256"):
        table.add_column(name, justify="right", no_wrap=True)
    for m in manifests:
        tokens = [count(m.counts[split].tokens) for split in ("train", "select", "confirm")]
        documents = f"{sum(c.documents for c in m.counts.values()):,}"
        table.add_row(m.corpus, m.source, m.tokenizer, *tokens, documents, m.sha256[:12])
    out.print(table)
    if not manifests:
        out.print("none yet: `nlq sweep` prepares what a spec asks for")
