"""The figures: what they read, that they draw from any state of a sweep, and that legends cover nothing."""

import math
import warnings
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.figure import Figure

from nlq.core.errors import NlqError
from nlq.core.run import State
from nlq.plots import (
    loss_vs_flops,
    loss_vs_time,
    lr_sensitivity,
    paired_difference,
    relative_improvement,
    scaling_fit,
    seeds,
    throughput,
    training_dynamics,
    tuning_curve,
)
from nlq.plots._make import make, titles
from nlq.plots._style import MARKERS, arm_styles, printable
from nlq.report import table1

FIGURES = [training_dynamics, relative_improvement]
DRAWN = [
    *FIGURES,
    lr_sensitivity,
    tuning_curve,
    seeds,
    throughput,
    loss_vs_flops,
    loss_vs_time,
    paired_difference,
    scaling_fit,
]


def _arm(fake, index, **changes):
    arms = list(fake.ARMS)
    arms[index] = replace(arms[index], **changes)
    return arms


def _all(value, points=2):
    return {(point, seed): value for point in range(points) for seed in (0, 1)}


def _states(fake):
    eight = [
        replace(fake.ARMS[i % 4], name=f"arm{i}", label=f"Arm {i}", gain=0.01 * i, points=fake.lr_points(*RATES))
        for i in range(8)
    ]
    no_evals = fake.make()
    no_evals.rows = {run: rows for run, rows in no_evals.rows.items() if run.startswith("baseline")}
    return {
        "plain": fake.make(),
        "baseline alone": fake.make(fake.ARMS[:1]),
        "one run": fake.make([replace(fake.ARMS[0], seeds=(0,))], rates=(1e-3,)),
        "eight arms of six points": fake.make(eight),
        "twelve arms": fake.make([replace(fake.ARMS[i % 4], name=f"a{i}") for i in range(12)], rates=(1e-3,)),
        "an arm that diverged": fake.make(_arm(fake, 1, diverged=_all(120))),
        "diverged at once": fake.make(_arm(fake, 1, diverged=_all(0))),
        "one seed diverged": fake.make(_arm(fake, 3, diverged={(1, 0): 170})),
        "baseline diverged": fake.make(_arm(fake, 0, diverged=_all(130))),
        "running": fake.make([replace(arm, state=_all((State.RUNNING, 100))) for arm in fake.ARMS]),
        "first evaluation only": fake.make([replace(arm, state=_all((State.RUNNING, 1))) for arm in fake.ARMS]),
        "an arm waits": fake.make(_arm(fake, 2, state=_all((State.QUEUED, 0)))),
        "only the baseline is evaluated": no_evals,
        "no seed in common": fake.make(_arm(fake, 3, seeds=(8, 9))),
        "lengths differ": fake.make(_arm(fake, 2, steps=200)),
        "60,000 steps": fake.make([replace(arm, seeds=(0,)) for arm in fake.ARMS[:2]], steps=60_000, every=1_000),
        "four sizes": fake.sized((1, 2, 3), (0.02, 0.06, 0.3)),
        "two sizes": fake.sized((1,), tuple(0.02 * i for i in range(10))),
        "labels": fake.make(_arm(fake, 1, label="$x_1$ _a ⭐ 字 " * 9)),
    }


RATES = (1e-3, 1.5e-3, 2e-3, 3e-3, 4e-3, 8e-3)
STATES = [
    "plain", "baseline alone", "one run", "eight arms of six points", "twelve arms", "an arm that diverged",
    "diverged at once", "one seed diverged", "baseline diverged", "running", "first evaluation only", "an arm waits",
    "only the baseline is evaluated", "no seed in common", "lengths differ", "60,000 steps", "four sizes", "two sizes",
    "labels",
]  # fmt: skip


@pytest.fixture(scope="module")
def states(fake):
    return _states(fake)


def _name(module):
    return module.__name__.rsplit(".", 1)[-1]


@pytest.mark.parametrize("figure", DRAWN, ids=_name)
@pytest.mark.parametrize("state", STATES)
def test_draws_in_any_state(states, figure, state):
    """Or says in one sentence, with what to type next, why it cannot; the first two figures always draw."""
    drawn = Figure()
    try:
        data = figure.read(states[state])
    except NlqError as error:
        assert figure not in FIGURES
        assert error.hint and "\n" not in error.message
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.draw(data, drawn)
        drawn.canvas.draw()
    _nothing_is_covered_or_cut(drawn)


def _nothing_is_covered_or_cut(figure):
    page = figure.bbox
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    boxes += [legend.get_window_extent() for legend in figure.legends]
    boxes += [text.get_window_extent() for text in figure.texts]
    for box in boxes:
        assert page.x0 - 1 <= box.x0 and box.x1 <= page.x1 + 1
        assert page.y0 - 1 <= box.y0 and box.y1 <= page.y1 + 1
    for above, below in pairwise(boxes):
        assert below.y1 <= above.y0 + 1
    for axes in figure.axes:
        _ticks_are_apart(axes)
    sizes = [t.get_fontsize() for legend in figure.legends for t in legend.get_texts()]
    sizes += [t.get_fontsize() for t in figure.texts]
    sizes += [t.get_fontsize() for axes in figure.axes for t in axes.get_xticklabels() + axes.get_yticklabels()]
    assert min(sizes) >= 7


def _ticks_are_apart(axes):
    low, high = sorted(axes.get_xlim())
    at = [label for label in axes.get_xticklabels() if label.get_text() and low <= label.get_position()[0] <= high]
    boxes = sorted((label.get_window_extent() for label in at), key=lambda box: box.x0)
    assert all(left.x1 <= right.x0 for left, right in pairwise(boxes))


@pytest.mark.parametrize("figure", DRAWN, ids=_name)
def test_nothing_at_all_is_one_sentence(fake, figure):
    source = fake.make()
    source.rows, source.table = {}, source.table[:0]
    members = (replace(m, run=replace(m.run, tokens_per_s=None)) for m in source.record.members)
    source.record = replace(source.record, members=tuple(members))
    with pytest.raises(NlqError) as error:
        figure.read(source)
    assert error.value.hint and "wd-lr-grid" in error.value.message


@pytest.mark.parametrize("figure", FIGURES)
def test_nothing_to_draw_is_an_error(fake, figure):
    source = fake.make()
    source.rows = {}
    with pytest.raises(NlqError, match="no evaluation"):
        figure.read(source)


@pytest.mark.parametrize("figure", FIGURES)
def test_curves_end_at_the_table(fake, figure):
    """The last point of a curve is Table 1's ΔLL."""
    source = fake.make(_arm(fake, 3, seeds=(0, 1, 2)))
    rows = {row.arm: row.delta_ll for row in table1.read(source).rows}
    lines = [line for line in figure.read(source).lines if getattr(line, "best", True)]
    for line in lines:
        if line.arm != "baseline":
            assert line.gain.steps[-1] == 300
            assert line.gain.mean[-1] == pytest.approx(100 * rows[line.arm], rel=1e-12)


def test_bands_are_the_range_over_seeds(fake):
    data = training_dynamics.read(fake.make())
    loss = data.lines[0].loss
    ends = [fake.curve(fake.ARMS[0], {"optim.lr_max": 2e-3}, seed, 300, 300, "confirm") for seed in (0, 1)]
    assert (loss.low[-1], loss.high[-1]) == (min(ends), max(ends))
    assert loss.mean[-1] == pytest.approx(np.mean(ends))
    assert "bands: smallest to largest over seeds" in data.footer


def test_training_loss_says_over_what_it_is_averaged(fake):
    data = training_dynamics.read(fake.make())
    assert data.train.arm == "nonlinear-q"
    assert (data.window, len(data.train.loss.steps), data.train.loss.steps[0]) == (5, 60, 2.0)
    assert data.footer.endswith("training loss: means over 5 steps")


def test_training_window_at_full_length(fake):
    source = fake.make([replace(arm, seeds=(0,)) for arm in fake.ARMS[:2]], steps=60_000, every=1_000, rates=(2e-3,))
    assert training_dynamics.read(source).window == 1_000


def test_nan_in_training_loss_leaves_its_window_out(fake):
    source = fake.make(_arm(fake, 3, seeds=(0,)))
    source.table.loc[source.table.step == 12, "loss_nats"] = math.nan
    assert 12.0 not in training_dynamics.read(source).train.loss.steps
    assert 17.0 in training_dynamics.read(source).train.loss.steps


def test_axis_counts_in_thousands_only_for_long_runs(fake):
    labels = []
    for steps in (300, 60_000):
        figure = Figure()
        arms = [replace(arm, seeds=(0,)) for arm in fake.ARMS[:2]]
        training_dynamics.draw(training_dynamics.read(fake.make(arms, steps=steps, every=steps // 10)), figure)
        labels.append((figure.axes[1].get_xlabel(), round(figure.axes[1].get_xlim()[1])))
    assert labels == [("Training step", 304), ("Training step (thousands)", 61)]


def test_parameters_stand_in_the_legend_title(fake):
    data = relative_improvement.read(fake.make())
    assert data.params.replace("\N{NO-BREAK SPACE}", " ").startswith("N.E. params: Baseline 84.95M, W_Q = I 77.88M")


def test_poor_points_do_not_flatten_the_rest(fake):
    figure = Figure()
    relative_improvement.draw(relative_improvement.read(fake.make(rates=(1e-6, 2e-3))), figure)
    low, high = figure.axes[0].get_ylim()
    assert low > -3 * high
    assert "4 curves below the axis" in figure.texts[0].get_text()


def test_arms_are_told_apart_by_colour_or_marker():
    styles = arm_styles([f"arm{i}" for i in range(14)], "arm0")
    assert len(set(styles.values())) == 14
    assert {style.marker for style in styles.values()} <= set(MARKERS)


def test_printable():
    assert printable("_x $a$ ⭐ 字\n") == r" _x \$a\$ ★ " + "\N{REPLACEMENT CHARACTER} "


def test_titles():
    names = {_name(module).replace("_", "-") for module in DRAWN}
    assert set(titles()) == names
    assert all("\n" not in title for title in titles().values())


@pytest.mark.parametrize("name", [_name(m).replace("_", "-") for m in DRAWN])
def test_every_figure_gives_the_same_bytes_twice(fake, tmp_path, name):
    rates = (5e-4, 2e-3, 8e-3)
    first, second = (make(name, fake.make(rates=rates), None, tmp_path / f"{n}.png").read_bytes() for n in (1, 2))
    assert first == second


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".SVG", b"<?xml")])
def test_the_same_data_gives_the_same_bytes(fake, tmp_path, suffix, magic):
    paths = [make("training-dynamics", fake.make(), None, tmp_path / f"{n}" / f"x{suffix}") for n in (1, 2)]
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert first.startswith(magic)


@pytest.mark.parametrize("path", ["x.jpg", "x", "sub/x.gif"])
def test_other_suffixes_are_refused_before_reading(path, tmp_path):
    with pytest.raises(NlqError, match=r"\.png, \.pdf or \.svg") as refused:
        make("training-dynamics", None, None, tmp_path / path)
    assert refused.value.hint == f"--out {(tmp_path / path).with_suffix('.png')}"


def test_unknown_figure_and_folder_that_cannot_be_written(fake, tmp_path):
    with pytest.raises(NlqError, match="training-dynamics"):
        make("training-dynamic", fake.make(), None, tmp_path / "x.png")
    (tmp_path / "file").write_text("")
    with pytest.raises(NlqError, match="cannot write"):
        make("training-dynamics", fake.make(), None, tmp_path / "file" / "x.png")
