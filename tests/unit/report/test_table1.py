"""Table 1: its rows, its words for what is missing, and every format."""

import csv
import io
import json
import math
import re
from dataclasses import replace

import pytest
from rich.console import Console

from nlq.core.errors import NlqError
from nlq.core.run import State
from nlq.report import table1
from nlq.report.render import FORMATS, latex, render, to_rich

NASTY = [
    "α-λ ⭐",
    "a|b_c & 50% $x^2$ #1 ~{z}",
    "[bold]not markup[/bold]",
    "*star",
    "back\\slash `tick` <b>",
    "line\nbreak\x1b[31m",
]
JSON_KEYS = {
    "arm", "label", "non_embedding_params", "delta_non_embedding_params", "weight_decay", "lr_max", "lr_min",
    "val_loss_nats", "val_loss_sd", "val_loss_interval", "delta_nats", "delta_nats_interval", "delta_ll",
    "delta_ll_interval", "delta_ppx", "delta_ppx_interval", "n_seeds", "seeds", "run_ids", "matched", "point",
    "is_best", "diverged_seeds", "diverged_step", "status",
}  # fmt: skip


def _refuse(token):
    raise AssertionError(f"{token} is not JSON")


def _json(source, **options):
    text = render(table1.sheet(table1.read(source, None, **options)), "json")
    assert text.isascii()
    return json.loads(text, parse_constant=_refuse)


def _md(source, **options):
    return render(table1.sheet(table1.read(source, None, **options)), "md")


def _arm(fake, index, **changes):
    arms = list(fake.ARMS)
    arms[index] = replace(arms[index], **changes)
    return arms


def test_json_rows(fake):
    table = _json(fake.make())
    assert {"sweep", "baseline", "step", "split", "rows", "notes"} <= table.keys()
    assert (table["sweep"], table["baseline"], table["step"], table["split"]) == (
        "wd-lr-grid",
        "baseline",
        300,
        "confirm",
    )
    rows = {row["arm"]: row for row in table["rows"]}
    assert list(rows) == ["baseline", "identity", "mlp-4.75", "nonlinear-q"]
    assert all(row.keys() >= JSON_KEYS for row in rows.values())
    assert rows["baseline"]["delta_ll"] is None
    row = rows["mlp-4.75"]
    assert row["delta_nats"] == pytest.approx(0.0276)
    assert row["delta_ll"] == pytest.approx(0.0276 / rows["baseline"]["val_loss_nats"])
    assert row["delta_ppx"] == pytest.approx(1 - math.exp(-0.0276))
    assert row["delta_non_embedding_params"] == 10_616_832
    assert (row["n_seeds"], row["seeds"], row["matched"], row["is_best"]) == (2, [0, 1], True, True)
    low, high = row["val_loss_interval"]
    assert low < row["val_loss_nats"] < high
    assert row["run_ids"] == ["mlp-4.75-1-0", "mlp-4.75-1-1"]


def test_intervals_hold_their_value(fake):
    for row in _json(fake.make())["rows"][1:]:
        for name in ("delta_nats", "delta_ll", "delta_ppx"):
            low, high = row[f"{name}_interval"]
            assert low <= row[name] <= high


def test_markdown_cells(fake):
    lines = _md(fake.make()).splitlines()
    assert lines[2] == r"| Config | Δ N.E. params | λ | η\_max | η\_min | Val loss | ΔLL | ΔPPX |"
    assert "| Baseline | 0 | 0.1 | 2e-3 | 2e-4 | 2.9463 ± 0.0014 (n=2) | ref. | ref. |" in lines
    assert any("**2.8950 ± 0.0007 (n=2)** | **1.74 %** | **5.00 %**" in line for line in lines)
    assert sum("**2." in line for line in lines) == 1


def test_every_point(fake):
    rows = _json(fake.make(), all_points=True)["rows"]
    assert len(rows) == 8
    assert [row["is_best"] for row in rows] == [False, True] * 4
    assert rows[0]["delta_ll"] < 0
    assert [row["is_reference"] for row in rows] == [False, True] + [False] * 6


def test_diverged_point(fake):
    source = fake.make(_arm(fake, 1, diverged={(0, 1): 120, (1, 0): 200, (1, 1): 210}))
    row = _json(source)["rows"][1]
    assert (row["val_loss_nats"], row["delta_ll"], row["diverged_step"]) == (None, None, 120)
    assert row["status"] == "1 of 2 seeds diverged at step 120"
    assert "| 1 of 2 seeds diverged at step 120 | – | – |" in _md(source)
    assert "2 of 2 seeds diverged, the first at step 200" in _md(source, all_points=True)


def test_one_seed_that_diverged(fake):
    arms = [replace(arm, seeds=(0,)) for arm in _arm(fake, 1, diverged={(0, 0): 120, (1, 0): 120})]
    text = _md(fake.make(arms))
    assert "| diverged at step 120 | – | – |" in text
    assert "compares two checkpoints, not two architectures" in text
    assert "±" not in text


def test_diverged_baseline_leaves_no_differences(fake):
    lost = {(point, seed): 130 for point in (0, 1) for seed in (0, 1)}
    rows = _json(fake.make(_arm(fake, 0, diverged=lost)))["rows"]
    assert rows[3]["val_loss_nats"] is not None
    assert all(row["delta_ll"] is None for row in rows)


def test_unfinished_points(fake):
    running = {(0, 0): (State.RUNNING, 100), (1, 0): (State.RUNNING, 120), (1, 1): (State.FAILED, 3)}
    source = fake.make(_arm(fake, 2, state=running))
    text = _md(source, all_points=True)
    assert "(1 running of 2 seeds)" in text
    assert "| – (1 running, 1 failed of 2 seeds) | – | – |" in text
    assert "without a result: 3 of 16 runs (2 running, 1 failed)" in text


def test_missing_numbers_print_as_a_dash(fake):
    source = fake.make()
    member = source.record.members[-1]
    run = replace(member.run, non_embedding_params=None, spec={}, provenance=None)
    members = tuple(replace(m, run=run) if m.arm == "nonlinear-q" else m for m in source.record.members)
    source.record = replace(source.record, members=members)
    assert "| Res. GELU α-λ ⭐ | – | – | – | – |" in _md(source)
    source.rows = {}
    assert "– (no evaluation at the compared step)" in _md(source)


def test_other_settings_of_a_point_join_the_label(fake):
    points = tuple({"optim.lr_max": 2e-3, "optim.warmup_steps": warmup} for warmup in (30, 60))
    text = _md(fake.make(_arm(fake, 3, points=points)), all_points=True)
    assert "Res. GELU α-λ ⭐, warmup\\_steps 60" in text


@pytest.mark.parametrize("label", NASTY)
@pytest.mark.parametrize("kind", FORMATS)
def test_labels_survive_every_format(fake, kind, label):
    text = render(table1.sheet(table1.read(fake.make(_arm(fake, 3, label=label)))), kind)
    if kind == "json":
        assert json.loads(text)["rows"][3]["label"] == label
    elif kind == "csv":
        assert list(csv.DictReader(io.StringIO(text, newline="")))[3]["label"] == label
    else:
        assert "\x1b" not in text
    if kind == "md":
        table = [line for line in text.splitlines() if line.startswith("|")]
        assert len(table) == 6
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {9}
    if kind == "latex":
        _check_latex(text)


def _check_latex(text):
    """What a compiler would trip over: bare specials, unbalanced braces, letters that plain LaTeX lacks."""
    body = text.split("\\midrule")[1].split("\\bottomrule")[0]
    plain = re.sub(r"\$[^$]*\$", "", re.sub(r"\\[\\{}$&#_%^~]", "", text))
    assert plain.count("{") == plain.count("}")
    assert "$" not in plain
    assert not re.search(r"\\\\\s*[\[*]", text)
    assert all(len(re.findall(r"(?<!\\)&", line)) == 7 for line in body.strip().splitlines())
    assert all(ord(char) < 0x180 for char in text)


def test_latex_letters():
    assert latex("α-λ ⭐ Ω Α ο é") == r"$\alpha$-$\lambda$ $\star$ $\Omega$ A $o$ é"
    assert latex("🜁") == "{[}U+1F701]"
    assert latex("50 % & a_b") == r"50 \% \& a\_b"


def test_terminal(fake):
    console = Console(width=120, file=io.StringIO(), color_system=None)
    console.print(to_rich(table1.sheet(table1.read(fake.make(_arm(fake, 3, label="[bold]α ⭐[/bold]"))))))
    text = console.file.getvalue()
    assert "[bold]α ⭐[/bold]" in text
    assert "sweep wd-lr-grid · 16 runs" in text


def test_csv_keeps_full_precision(fake):
    table = table1.read(fake.make())
    row = list(csv.DictReader(io.StringIO(render(table1.sheet(table), "csv"))))[3]
    assert float(row["delta_ll"]) == table.rows[3].delta_ll
    assert row["seeds"] == "0 1"
    assert json.loads(row["point"]) == {"optim.lr_max": 0.002}


def test_unknown_format(fake):
    with pytest.raises(NlqError, match="latex"):
        render(table1.sheet(table1.read(fake.make())), "latx")


def test_the_note_on_unclear_differences_points_to_no_option(fake):
    notes = table1.read(fake.make([fake.ARMS[0], replace(fake.ARMS[1], gain=0.0)])).notes
    assert "no difference is clear of 0: every 95 % interval over seeds holds it" in notes
