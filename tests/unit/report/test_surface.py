"""`nlq report --surface`: made-up points of the stated surface give it back (METHOD 4.6), with errors that are true."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from nlq.core.errors import NlqError
from nlq.report import surface
from nlq.stats.scaled import Scaled, scaled
from nlq.stats.selection import load
from nlq.stats.surface import Surface, _refit, spread

STATED = Surface(477.8, 2143.0, 1.8172, 0.3473, 0.3672, 0.0, 0)


def _grid(sizes=15, lengths=16):
    grid = [(n, d) for n in np.geomspace(5e7, 1.5e10, sizes) for d in np.geomspace(1e9, 1e12, lengths)]
    return np.array(grid).T


def _csv(folder, rows, header="N,D,loss"):
    path = folder / "points.csv"
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]), encoding="utf-8")
    return path


def test_the_stated_surface_from_its_own_points():
    n, d = _grid()
    rng = np.random.default_rng(3)
    points = [Scaled(a, b, STATED.loss(a, b) * math.exp(rng.normal(0, 1e-4))) for a, b in zip(n, d, strict=True)]
    table = surface.of(points, "made up", 200)
    assert (table.points, table.scant, table.draws) == (240, False, 200)
    for row, truth in zip(table.rows, STATED[:5], strict=True):
        assert row.value == pytest.approx(truth, rel=0.01)
        assert 0 < row.se < 0.02 * truth


def test_standard_errors_are_those_of_repeated_measurement():
    n, d = _grid(6, 6)
    rng, start = np.random.default_rng(4), np.array([*np.log(STATED[:3]), *STATED[3:5]])
    exact = np.log([STATED.loss(*point) for point in zip(n, d, strict=True)])
    logs = [np.array([np.log(n), np.log(d), exact + rng.normal(0, 2e-3, 36)]) for _ in range(150)]
    fits = np.array([_refit(start, one) for one in logs])
    fits[:, :3] = np.exp(fits[:, :3])
    found = [
        spread(Surface(*fit, 0.0, 36), n, d, np.exp(one[2]), 200)[:5]
        for fit, one in zip(fits[:8], logs[:8], strict=True)
    ]
    assert np.mean(found, axis=0) == pytest.approx(fits.std(axis=0, ddof=1), rel=0.35)


def test_few_points_warn_and_too_few_are_refused(nlq, tmp_path):
    n, d = _grid(3, 3)
    rows = [(a, b, STATED.loss(a, b)) for a, b in zip(n, d, strict=True)]
    done = nlq("report", "--surface", "--points", _csv(tmp_path, rows), "--json")
    table = json.loads(done.out)
    assert (done.code, table["points"], table["scant"], table["draws"]) == (0, 9, True, 4000)
    assert [row["value"] for row in table["rows"]] == pytest.approx(STATED[:5], rel=0.01)
    assert any("fewer than 20 points" in note for note in table["notes"])
    done = nlq("report", "--surface", "--points", _csv(tmp_path, rows[:5]))
    assert (done.code, "5 points" in done.err) == (2, True)
    done = nlq("report", "--surface", "--points", _csv(tmp_path, rows[:1]))
    assert (done.code, "1 point:" in done.err, "--points FILE" in done.err) == (2, True, True)


@pytest.mark.parametrize(
    ("sizes", "lengths", "message", "hint"),
    [
        (7, 1, "one D: B and β cannot be fitted", "other lengths"),
        (1, 7, "one N: A and α cannot be fitted", "other sizes"),
        (7, 2, "two values of D: B and β cannot be fitted", "other lengths"),
    ],
)
def test_too_few_sizes_or_lengths_are_refused(nlq, tmp_path, sizes, lengths, message, hint):
    rows = [(a, b, STATED.loss(a, b)) for a, b in zip(*_grid(sizes, lengths), strict=True)]
    done = nlq("report", "--surface", "--points", _csv(tmp_path, rows))
    assert (done.code, message in done.err, hint in done.err) == (2, True, True)
    assert "Warning" not in done.err


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        ("N,D", "1,2", "no column loss"),
        ("N,D,loss", "1,2,x", "points.csv:2"),
        ("N,D,loss", "1,2", "points.csv:2"),
        ("N,D,loss", "1,-2,3", "points.csv:2: N, D and loss must be above 0"),
        ("N,D,loss", "1,2,nan", "points.csv:2: N, D and loss must be above 0"),
    ],
)
def test_bad_files(nlq, tmp_path, header, row, message):
    done = nlq("report", "--surface", "--points", _csv(tmp_path, [row.split(",")], header))
    assert (done.code, message in done.err) == (2, True)
    assert "Traceback" not in done.err


def test_bad_calls(nlq, tmp_path):
    missing = nlq("report", "--surface", "--points", tmp_path / "none.csv")
    assert (missing.code, "cannot be read" in missing.err) == (2, True)
    assert nlq("report", "--evidence", "--points", "x.csv").code == 2
    assert nlq("report", "--surface", "--points", "x.csv", "--sweep", "a").code == 2
    (tmp_path / "empty.csv").write_text("")
    assert nlq("report", "--surface", "--points", tmp_path / "empty.csv").code == 2


def test_of_a_sweep_the_baseline_in_every_size_and_length(fake):
    arms = [
        replace(fake.ARMS[0], name=f"{size}x{steps}", extra_params=size * 10_000_000, steps=steps)
        for size in (0, 1, 2)
        for steps in (100, 200, 400)
    ]
    source = fake.make([*arms, fake.ARMS[3]], every=100, rates=(1e-3, 2e-3))
    members = []
    for member in source.record.members:
        run = member.run
        kind = "bottleneck" if member.arm == "nonlinear-q" else "linear"
        model = {"query": {"kind": kind}, "mlp": {"ratio": 4 + run.non_embedding_params / 1e8}}
        spec = {**run.spec, "model": model, "train": {**run.spec["train"], "batch_tokens": 10_000_000}}
        members.append(replace(member, run=replace(run, spec=spec)))
        loss = STATED.loss(run.non_embedding_params, run.steps_planned * 1e7) + abs(run.spec["optim"]["lr_max"] - 2e-3)
        source.rows[run.run_id] = [r._replace(loss_nats=loss) for r in source.rows[run.run_id]]
    source.record = replace(source.record, members=tuple(members))
    found = scaled(load(source, None))
    assert len(found) == 9
    assert all(p.loss_nats == pytest.approx(STATED.loss(p.params, p.tokens)) for p in found)
    table = surface.read(source)
    assert (table.points, table.scant) == (9, True)
    with pytest.raises(NlqError, match="4 points"):
        surface.read(fake.make())
