"""The page as data and as text: whose numbers it shows, what stands behind them, and that no name of an arm is code."""

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from nlq.core.run import State
from nlq.report import judged
from nlq.report.page import curves
from nlq.report.page.markup import data, digest, tag
from nlq.report.page.reading import read
from nlq.report.page.writing import document
from nlq.report.render import FORMATS, render
from nlq.stats.evidence import gather

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"'& %{y} \u202e"


class _Elements(HTMLParser):
    """Every element with its attributes, and the text outside of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict]] = []
        self.said = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        if not (self.found and self.found[-1][0] == "script"):
            self.said += data


def _embedded(text):
    return json.loads(re.search(r'<script type="application/json" id="nlq">(.*?)</script>', text, re.DOTALL)[1])


def test_the_same_database_gives_the_same_text(fake):
    assert document(read(fake.make())) == document(read(fake.make()))


def test_nothing_is_loaded_from_elsewhere_and_only_the_own_scripts_run(fake):
    text = document(read(fake.make()))
    page, code = _Elements(text), re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    links = [value for _, attrs in page.found for key, value in attrs.items() if key in ("src", "href", "action")]
    assert all(re.fullmatch(r"#[\w-]+|[\w-]+\.(tex|csv)", link) for link in links)
    policy = next(attrs["content"] for name, attrs in page.found if name == "meta" and "http-equiv" in attrs)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert len(code) == 2
    assert all(digest(one) in policy for one in code)
    assert not any(key.startswith("on") for _, attrs in page.found for key in attrs)


def test_the_own_code_makes_no_markup_and_runs_no_text():
    code = files("nlq.report.page").joinpath("page.js").read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|https?:", code)


def test_names_of_arms_are_text(fake):
    arms = [replace(arm, name=f"{arm.name}{HOSTILE}", label=f"{HOSTILE}{i}") for i, arm in enumerate(fake.ARMS)]
    source = fake.make(arms, name=f"sweep{HOSTILE}")
    text = document(read(source))
    page = _Elements(text)
    assert sum(name == "script" for name, _ in page.found) == 3
    assert not any(name == "img" for name, _ in page.found)
    assert f"{HOSTILE}1" in page.said
    assert [arm["label"] for arm in _embedded(text)["arms"]] == [arm.label for arm in arms]


def test_markup_is_escaped_wherever_text_enters():
    assert tag("p", "<b>", tag("i", "&"), class_='"') == '<p class="&quot;">&lt;b&gt;<i>&amp;</i></p>'
    assert "<" not in data("x", {"</script>": ["<!--", math.nan]}).removeprefix("<script").removesuffix("</script>")


def test_curves_are_the_database_s_own_numbers(fake):
    source = fake.make()
    for line in read(source).lines:
        for split in ("select", "confirm"):
            rows = [(e.step, e.loss_nats) for e in source.evals([line.run_id])[line.run_id] if e.split == split]
            assert list(zip(line.series[split].steps, line.series[split].values, strict=True)) == rows
        steps = source.steps([line.run_id])
        assert list(line.series["batch"].values) == list(steps["loss_nats"])
        assert line.series["confirm"].seconds[-1] == pytest.approx(300 * 0.009)


def test_gains_are_paired_by_seed_with_the_baseline_s_best_point(fake):
    page = read(fake.make())
    base = {line.seed: line.series["confirm"].values for line in page.lines if line.arm == "baseline" and line.best}
    for line in page.lines:
        if line.arm == "baseline" and line.best:
            assert "gain" not in line.series
            continue
        own, other = line.series["confirm"].values[-1], base[line.seed][-1]
        assert line.series["gain"].values[-1] == pytest.approx(100 * (other - own) / other)


def test_long_trainings_are_thinned_in_a_stated_way(fake, monkeypatch):
    monkeypatch.setattr(curves, "MOST_POINTS", 100)
    page = read(fake.make())
    assert {line.every for line in page.lines} == {3}
    assert page.lines[0].series["batch"].steps[:2] == (0, 3)
    assert page.lines[0].series["batch"].steps[-1] == 299
    assert len(page.lines[0].series["confirm"].steps) == 7
    assert "of the steps of long trainings one in 3 and the last" in page.thinned


def test_every_cell_has_runs_behind_it(fake):
    page = read(fake.make())
    ids = {run.run_id for run in page.runs}
    assert [table.key for table in page.tables][:3] == ["table1-evidence", "table1", "evidence"]
    for table in page.tables:
        assert len(table.behind) == len(table.sheet.cells)
        assert all(row.own and set(row.own) <= set(row.both) <= ids for row in table.behind)
    table = page.tables[0]
    assert table.behind[3].both == ("baseline-1-0", "baseline-1-1", "nonlinear-q-1-0", "nonlinear-q-1-1")
    facts = dict(next(run.facts for run in page.runs if run.run_id == "nonlinear-q-1-1"))
    assert facts["training data hash"] == "same-1-300"
    assert facts["spec key"] == "key-nonlinear-q-1-1"
    assert facts["commit"] == "12e65b3aa"
    assert page.measured[0] == ("seeds", "0, 1")
    assert dict(page.measured)["machine"] == "host, cpu, 1 thread"


def test_confirmed_numbers_have_fresh_runs_alone_behind_them(fake):
    """A point that was not chosen keeps the runs that it has, and those of the baseline that it is compared with."""
    page = read(fake.confirmed())
    shown = {table.key: table for table in page.tables}
    for key in ("table1-evidence", "table1", "evidence", "why-1"):
        assert all(run_id.startswith("fresh-") for row in shown[key].behind for run_id in row.both), key
        assert all(set(row.own) <= set(row.both) for row in shown[key].behind), key
    assert "baseline-0-0" in shown["every-point"].behind[0].own


def test_table_1_with_evidence_in_every_format(fake):
    table = judged.of(gather(fake.make()))
    sheet = judged.sheet(table)
    assert [c.text for c in sheet.cells[0]][:8] == [
        "Baseline",
        "ref.",
        "2.9463 ± 0.0014 (n=2)",
        *["ref."] * 3,
        "–",
        "2",
    ]
    assert all(render(sheet, form) for form in FORMATS)
    assert len({row.shown.arm for row in table.rows}) == 4


def test_bowls_mark_the_choice_and_what_diverged(fake):
    rates = (1e-3, 2e-3, 4e-3)
    arms = [fake.ARMS[0], replace(fake.ARMS[3], diverged={(2, 1): 120})]
    page = read(fake.make(arms, rates=rates))
    base, other = page.bowls
    assert [dip.best for dip in base.dips] == [False, True, False]
    assert base.lowest[0] == pytest.approx(2e-3, rel=0.2)
    assert [dip.loss_nats is None for dip in other.dips] == [False, False, True]
    assert "seed 1: diverged" in other.dips[2].said
    assert document(page)


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ({}, "No verdict."),
        ({"state": {(i, s): (State.QUEUED, 0) for i in (0, 1) for s in (0, 1)}}, "No verdict."),
        ({"diverged": {(i, s): 60 for i in (0, 1) for s in (0, 1)}}, "No verdict."),
    ],
)
def test_one_arm_alone(fake, change, answer):
    page = read(fake.make([replace(fake.ARMS[0], **change)]))
    assert page.answer == answer
    assert document(page)


def test_missing_numbers_are_dashes(fake):
    lost = {(i, s): 60 for i in (0, 1) for s in (0, 1)}
    text = document(read(fake.make([fake.ARMS[0], replace(fake.ARMS[3], diverged=lost)])))
    said = _Elements(text).said
    assert "– no difference to show" in said
    assert not re.search(r"\b(nan|None|inf)\b", said)
