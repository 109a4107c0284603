"""`nlq report --evidence` and `--why`: verdicts of synthetic sweeps, and what is printed of them."""

import json
from dataclasses import replace

import pytest

from nlq.core.errors import NlqError
from nlq.core.run import State
from nlq.report import evidence, why
from nlq.report.render import FORMATS, render

RATES = (1e-3, 2e-3, 4e-3)
TUNING, FRESH = (0, 1), (10, 11, 12, 13, 14)


def _confirmed(fake, arms=None, fresh=FRESH):
    return fake.confirmed(arms or fake.ARMS, fresh)


def _rows(source, **options):
    return {row.arm: row for row in evidence.read(source, **options).rows}


def test_better_on_fresh_seeds(fake):
    row = _rows(_confirmed(fake))["nonlinear-q"]
    assert (row.verdict, row.reasons) == ("better", ())
    assert (row.n_seeds, row.n_fresh, row.budget_points, row.budget_seeds) == (5, 5, 3, 2)
    assert row.delta_nats_interval.low < 0.05 < row.delta_nats_interval.high
    assert row.flattery_nats == 0
    assert "5 seeds, confirmed" in row.badges
    assert "baseline tuned" in row.badges


def test_fresh_seeds_choose_nothing(fake):
    source = _confirmed(fake)
    for run_id, rows in source.rows.items():
        if run_id.startswith("fresh-"):
            source.rows[run_id] = [r._replace(loss_nats=r.loss_nats + 1) for r in rows]
    assert _rows(source)["nonlinear-q"].point == {"optim.lr_max": 2e-3}


def test_worse_and_equivalent(fake):
    arms = [fake.ARMS[0], replace(fake.ARMS[1], gain=-0.02), replace(fake.ARMS[3], gain=0.0)]
    source = _confirmed(fake, arms)
    source.kept = False
    for run_id, rows in source.rows.items():  # nothing but a hair between the arms
        if "nonlinear" in run_id:
            base = source.rows[run_id.replace("nonlinear-q", "baseline")]
            source.rows[run_id] = [r._replace(loss_nats=b.loss_nats + 1e-4) for r, b in zip(rows, base, strict=True)]
    rows = _rows(source)
    assert rows["identity"].verdict == "worse"
    assert rows["nonlinear-q"].verdict == "equivalent"


def test_seeds_that_chose_the_point_confirm_nothing(fake):
    source = fake.make([replace(a, seeds=(0, 1, 2, 3, 4)) for a in fake.ARMS], rates=RATES)
    row = _rows(source)["nonlinear-q"]
    assert (row.verdict, row.n_fresh, row.seeds_needed) == ("undecided", 0, 5)
    assert row.flattery_nats > 0


def _untuned(fake):
    """The paper's comparison: a baseline at one learning rate, the variant at many."""
    return [replace(fake.ARMS[0], points=fake.lr_points(1e-3)), fake.ARMS[3]]


@pytest.mark.parametrize(
    ("arms", "reason"),
    [
        (_untuned, "budgets differ: 3 points × 2 seeds against the baseline's 1 point × "),
        (_untuned, "Baseline: one learning rate: not tuned"),
        (lambda f: [f.ARMS[0], replace(f.ARMS[3], data="other")], "data are unmatched"),
    ],
)
def test_better_is_refused(fake, arms, reason):
    row = _rows(fake.make(arms(fake), rates=RATES))["nonlinear-q"]
    assert row.verdict == "undecided"
    assert any(reason in found for found in row.reasons)


def test_runs_made_elsewhere_are_not_paired_and_claim_nothing(fake):
    source = fake.make([fake.ARMS[0], fake.ARMS[3]], rates=RATES)
    members = (replace(m, run=replace(m.run, imported_from="a.csv")) for m in source.record.members)
    source.record = replace(source.record, members=tuple(members))
    row = _rows(source)["nonlinear-q"]
    assert row.verdict == "undecided"
    assert "imported: data order and evaluation windows are not known" in row.reasons
    assert row.design == "unpaired (Welch)"


def test_edge_is_refused(fake):
    row = _rows(fake.make(rates=(1e-3, 2e-3)))["nonlinear-q"]
    assert "Baseline: edge: not tuned (optim.lr_max)" in row.reasons
    assert row.verdict == "undecided"


def test_one_seed(fake):
    source = fake.make([replace(a, seeds=(0,)) for a in fake.ARMS], rates=RATES)
    row = _rows(source, sigma_nats=0.0018)["nonlinear-q"]
    assert (row.p_value, row.verdict) == (None, "undecided")
    assert row.z == pytest.approx(row.delta_nats / 0.0018 / 2**0.5)
    assert "one seed: compares two checkpoints, not two architectures" in row.reasons
    assert _rows(source)["nonlinear-q"].z is None


def test_a_diverged_seed_stays_in_the_denominator(fake):
    lost = {(p, s): 50 for p in range(3) for s in TUNING}
    source = fake.make([fake.ARMS[0], replace(fake.ARMS[3], diverged=lost)], rates=RATES)
    row = _rows(source)["nonlinear-q"]
    assert (row.delta_nats, row.wins, row.n_diverged) == (None, 0.0, 2)
    assert any("2 of 2 seeds diverged (+∞)" in reason for reason in row.reasons)


def test_family_by_joint_bootstrap_or_by_holm(fake):
    source = _confirmed(fake)
    table = evidence.read(source)
    assert "3 arms against one baseline; max-T" in table.family
    joint = {row.arm: row for row in table.rows}
    source.kept = False
    assert "Holm" in evidence.read(source).family
    assert sum("the interval holds seeds only" in note for note in evidence.read(source).notes) == 3
    holm = _rows(source)["nonlinear-q"]
    assert (holm.se_eval_nats, joint["nonlinear-q"].se_eval_nats > 0) == (None, True)


def test_a_preview_claims_nothing(fake):
    state = {(p, s): (State.RUNNING, 200) for p in range(3) for s in TUNING}
    rows = _rows(fake.make([replace(a, state=state) for a in fake.ARMS], rates=RATES))
    assert all("no run is finished" in row.reasons for row in rows.values())


def test_only_the_baseline(fake):
    assert evidence.read(fake.make(fake.ARMS[:1])).rows == ()


@pytest.mark.parametrize("form", FORMATS)
def test_every_format(fake, form):
    source = _confirmed(fake)
    assert "better" in render(evidence.sheet(evidence.read(source)), form)
    assert "better" in render(why.sheet(why.read(source, "nonlinear-q")), form)


def test_the_footer_names_family_budget_and_reasons(fake):
    notes = "\n".join(evidence.read(fake.make(rates=(1e-3, 2e-3))).notes)
    for words in ("family: 3 arms", "the baseline's budget: 2 points × 2 seeds", "edge: not tuned", "c_k σ", "δ_min"):
        assert words in notes


def test_why_has_the_numbers(fake):
    rows = {row.step: row.found for row in why.read(_confirmed(fake), "nonlinear-q").rows}
    assert rows["verdict"] == "better"
    assert "lowest at 2e-3, 0.0209 nats per (ln η)²" in rows["arm's best point"]
    assert rows["design"] == "paired by seed; 5 seeds: 10, 11, 12, 13, 14"
    assert "clustered by 200 documents" in rows["SE of the evaluation"]
    assert rows["baseline: expected best of k points"].startswith("1: 2.9")


def test_why_not_of_the_baseline_or_of_an_unknown_arm(fake):
    with pytest.raises(NlqError, match="is the baseline"):
        why.read(fake.make(), "baseline")
    with pytest.raises(NlqError, match="no arm"):
        why.read(fake.make(), "nonlinear_q")


def test_json_is_strict(fake):
    table = json.loads(render(evidence.sheet(evidence.read(fake.make())), "json"))
    assert {"family", "rows", "notes", "sigma_nats"} <= table.keys()


def test_the_cross_table_and_ranks(fake):
    grid = fake.lr_points(1e-3, 2e-3), fake.lr_points(2e-3, 4e-3)
    arms = [replace(fake.ARMS[0], points=grid[0]), replace(fake.ARMS[3], points=grid[1])]
    source = fake.make(arms)
    rows = {row.step: row.found for row in why.read(source, "nonlinear-q").rows}
    (row,) = evidence.read(source).rows
    for at, pair in (("baseline's", ("base_at_base_nats", "other_at_base_nats")),
                     ("arm's", ("base_at_other_nats", "other_at_other_nats"))):  # fmt: skip
        base, other = (getattr(row, name) for name in pair)
        assert rows[f"at the {at} optimum"] == f"baseline {base:.4f}, arm {other:.4f}: δ +{base - other:.4f}"
    assert rows["best against best, median against median (select)"].count(" and ") == 2
    apart = fake.make([replace(fake.ARMS[0], points=fake.lr_points(1e-3)), arms[1]])
    assert ", arm –: δ –" in {r.step: r.found for r in why.read(apart, "nonlinear-q").rows}["at the baseline's optimum"]


def test_bca_over_documents_stands_beside_the_clustered_error(fake):
    source = _confirmed(fake)
    rows = {row.step: row.found for row in why.read(source, "nonlinear-q").rows}
    se = float(rows["over documents alone, clustered SE"].split()[0])
    low, high = map(float, rows["over documents alone, BCa interval (2,000 resamples)"].strip("[]").split(", "))
    assert low < 0.05 < high
    assert (high - low) / 3.92 == pytest.approx(se, rel=0.1)
    source.kept = False
    assert not any("BCa" in row.step for row in why.read(source, "nonlinear-q").rows)
