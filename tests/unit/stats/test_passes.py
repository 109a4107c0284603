"""How often a run has read its text: the paper's 3.26 passes, and what the badges and notes say of it."""

from dataclasses import replace

import pytest

from nlq.report import evidence, table1
from nlq.stats.passes import in_words, passes
from nlq.stats.selection import load

PAPER_TEXT = 9_035_582_198
"""Tokens of OpenWebText's training split, as the paper's code prepares it."""


def _source(fake, text, steps=300, batch=1000, plan="windows", only=None):
    source = fake.make(rates=(1e-3, 2e-3, 4e-3), steps=steps, every=steps // 6)

    def told(member):
        run = member.run
        train = {**run.spec["train"], "batch_tokens": batch}
        spec = {**run.spec, "train": train, "data": {"plan": plan}, "model": {"context": 100}}
        known = text if only in (None, member.arm) else None
        return replace(member, run=replace(run, spec=spec, train_tokens=known))

    source.record = replace(source.record, members=tuple(told(m) for m in source.record.members))
    return source


def _reference(source):
    return load(source, None).reference


def test_the_papers_passes(fake):
    point = _reference(_source(fake, PAPER_TEXT, 60_000, 491_520, "paper"))
    assert f"{passes(point.traces[0]):.2f}" == "3.26"
    assert in_words(point) == "tokens drawn at random: 3.26 passes"


def test_whole_windows_make_an_epoch(fake):
    point = _reference(_source(fake, 150_099))  # 1500 windows of 100, and a rest that is never read
    assert passes(point.traces[0]) == 2.0
    assert in_words(point) == "tokens repeated: 2.00 passes"
    assert in_words(_reference(_source(fake, 600_001))) == "tokens unique (0.5 of a pass)"
    assert in_words(_reference(_source(fake, None))) == "repetition of tokens not known"


def test_badges_and_notes_say_it(fake):
    source = _source(fake, 150_001)
    table = evidence.read(source)
    assert all("tokens repeated: 2.00 passes" in row.badges for row in table.rows)
    assert "tokens repeated: 2.00 passes over the training text" in table1.read(source).notes
    partly = evidence.read(_source(fake, 150_001, only="baseline"))
    assert "repetition of tokens not known; of the baseline tokens repeated: 2.00 passes" in partly.rows[0].badges
    assert "passes over" not in "\n".join(table1.read(_source(fake, 600_001)).notes)


@pytest.mark.parametrize("badge", ["seeds", "baseline tuned", "count", "speed", "downstream", "tokens"])
def test_every_badge_of_the_method(fake, badge):
    row = evidence.read(_source(fake, 600_001)).rows[0]
    assert any(badge in found for found in row.badges)
