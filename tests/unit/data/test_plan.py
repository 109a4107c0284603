"""Batch plans and evaluation windows: every row is known in advance."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nlq.core.errors import NlqError
from nlq.core.spec import ModelSpec, RunSpec, TrainSpec
from nlq.data.plan import Batch, PaperData, WindowsData, rolling_hash, run_data, window_order
from nlq.data.prepare import prepare

COUNTING = np.arange(10_001, dtype=np.uint16)


def windows(tokens: int = 1_001, context: int = 10, rows: int = 8, **changes) -> WindowsData:
    defaults = {
        "train": np.arange(tokens), "select": np.arange(500), "confirm": np.arange(500), "seed": 3, "eval_windows": 7,
    }  # fmt: skip
    return WindowsData(**{**defaults, **changes}, context=context, rows=rows)


def paper(train: np.ndarray = COUNTING, val: np.ndarray = COUNTING[:999], **changes) -> PaperData:
    defaults = {"context": 16, "rows": 6, "seed": 0, "eval_windows": 5, "eval_every": 10, "steps": 40}
    return PaperData(train, val, **{**defaults, **changes})


def first_tokens(batch: Batch) -> list[int]:
    return batch.x_BT[:, 0].tolist()


# --- windows ---------------------------------------------------------------------------------------------------------


def test_rows_are_consecutive_tokens_and_targets_follow():
    x_BT, y_BT = windows(train=COUNTING).batch(0)
    assert x_BT.shape == y_BT.shape == (8, 10)
    assert x_BT.dtype == y_BT.dtype == np.int64
    assert x_BT.flags.c_contiguous
    assert y_BT.flags.c_contiguous
    assert np.array_equal(y_BT, x_BT + 1)
    assert np.array_equal(x_BT, x_BT[:, :1] + np.arange(10))
    assert set(x_BT[:, 0] % 10) == {0}, "windows are disjoint"


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_an_epoch_sees_every_window_once_and_the_next_one_everything_again(rows, more, seed):
    count = rows + more
    data = windows(tokens=count * 10 + 1, rows=rows, seed=seed)
    read = [start // 10 for step in range(3 * count // rows) for start in first_tokens(data.batch(step))]
    for epoch in range(len(read) // count):
        assert sorted(read[epoch * count : (epoch + 1) * count]) == list(range(count))


def test_a_batch_may_hold_the_end_of_one_epoch_and_the_start_of_the_next():
    data = windows(tokens=121, rows=8)
    expected = np.concatenate([window_order(12, 3, epoch) for epoch in range(2)])[8:16] * 10
    assert first_tokens(data.batch(1)) == expected.tolist()


def test_a_corpus_of_exactly_one_batch_works():
    data = windows(tokens=81, rows=8)
    assert sorted(first_tokens(data.batch(5))) == list(range(0, 80, 10))


def test_epochs_and_seeds_have_their_own_orders():
    orders = {tuple(window_order(50, seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_the_order_is_the_one_of_the_first_release():
    assert window_order(8, 0, 0).tolist() == [3, 2, 1, 6, 0, 7, 4, 5]
    assert window_order(8, 7, 2).tolist() == [6, 4, 0, 5, 7, 1, 3, 2]


@settings(deadline=None)
@given(st.lists(st.integers(0, 200), min_size=1, max_size=12))
def test_a_batch_is_a_function_of_its_step(steps):
    straight = windows()
    expected = [straight.batch(step) for step in range(201)]
    jumping = windows()
    for step in steps:
        assert np.array_equal(jumping.batch(step).x_BT, expected[step].x_BT)


def test_evaluation_takes_half_from_each_half_evenly_spread():
    select, confirm = windows(select=np.arange(401), confirm=np.arange(301)).evaluation(0)
    assert (select.split, confirm.split) == ("select", "confirm")
    assert select.x_WT[:, 0].tolist() == [0, 100, 200, 300]
    assert confirm.x_WT[:, 0].tolist() == [0, 100, 200]
    assert np.array_equal(select.y_WT, select.x_WT + 1)
    assert select.doc_ids_WT is None


def test_evaluation_is_the_same_at_every_step_and_for_every_seed():
    expected = windows().evaluation(0)
    for data, step in ((windows(), 50), (windows(seed=9), 7)):
        for one, two in zip(expected, data.evaluation(step), strict=True):
            assert np.array_equal(one.x_WT, two.x_WT)


@settings(deadline=None)
@given(st.integers(1, 400), st.integers(11, 900), st.integers(11, 900))
def test_no_evaluation_window_comes_twice_and_short_halves_give_all_they_have(wanted, select, confirm):
    sets = windows(select=np.arange(select), confirm=np.arange(confirm), eval_windows=wanted).evaluation(0)
    sizes = {"select": (-(-wanted // 2), (select - 1) // 10), "confirm": (wanted // 2, (confirm - 1) // 10)}
    for found in sets:
        assert len(found.x_WT) == min(sizes[found.split]) > 0
        assert len(np.unique(found.x_WT[:, 0])) == len(found.x_WT)
        assert set(found.x_WT[:, 0] % 10) == {0}


def test_one_evaluation_window_is_one_of_select():
    assert [(s.split, len(s.x_WT)) for s in windows(eval_windows=1, confirm=np.arange(3)).evaluation(0)] == [
        ("select", 1)
    ]


def test_documents_are_those_of_the_predicted_tokens():
    bounds = np.array([0, 10, 15, 500])
    ids = windows(doc_ids=lambda split, at: np.searchsorted(bounds, at, side="right") - 1).evaluation(0)[0].doc_ids_WT
    assert ids[0].tolist() == [0] * 9 + [1], "the last target of the first window is token 10"
    assert ids.shape == (4, 10)


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        ({"tokens": 80}, "train split holds 80 tokens, 7 windows of 10; one batch needs 8", "at most 70"),
        ({"tokens": 3}, "train split holds 3 tokens, 0 windows", "model.context"),
        (
            {"select": np.arange(10)},
            "select split holds 10 tokens, 0 windows of 10; evaluation needs 1",
            "val_fraction",
        ),
        ({"confirm": np.arange(0)}, "confirm split holds 0 tokens", "val_fraction"),
    ],
)
def test_too_short_a_text_is_refused_with_numbers(changes, message, hint):
    with pytest.raises(NlqError, match=message) as caught:
        windows(**changes)
    assert hint in caught.value.hint


# --- paper -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 5])
def test_steps_are_the_rows_of_one_draw(seed):
    draw = torch.randint(len(COUNTING) - 16, (40, 6), generator=torch.Generator().manual_seed(42 + seed)).numpy()
    data = paper(seed=seed)
    for step in range(40):
        x_BT, y_BT = data.batch(step)
        assert np.array_equal(x_BT, draw[step][:, None] + np.arange(16))
        assert np.array_equal(y_BT, x_BT + 1)


def test_first_windows_are_those_of_the_papers_own_code():
    """The heads of the index plans that stand beside the golden trajectories."""
    data = paper(np.arange(4096), np.arange(2048), context=32, rows=8, eval_windows=16, eval_every=20, steps=80)
    assert first_tokens(data.batch(0))[:4] == [678, 2099, 3196, 3438]
    assert data.evaluation(0)[0].x_WT[:4, 0].tolist() == [582, 275, 1852, 1678]


@settings(deadline=None)
@given(st.lists(st.integers(0, 39), min_size=1, max_size=8))
def test_jumps_forward_and_back_give_the_same_rows(steps):
    draw = torch.randint(len(COUNTING) - 16, (40, 6), generator=torch.Generator().manual_seed(42)).numpy()
    data = paper()
    for step in steps:
        assert first_tokens(data.batch(step)) == draw[step].tolist()


def test_evaluation_rows_are_those_of_a_fresh_draw_whatever_the_seed():
    draw = torch.randint(999 - 16, (40 // 10 + 1, 5), generator=torch.Generator().manual_seed(42)).numpy()
    for seed in (0, 3):
        data = paper(seed=seed)
        for step in (0, 10, 15, 40):
            (found,) = data.evaluation(step)
            assert found.split == "val"
            assert found.x_WT[:, 0].tolist() == draw[step // 10].tolist()
            assert found.doc_ids_WT is None


def test_the_last_possible_window_fits():
    data = paper(train=np.arange(18), val=np.arange(17))
    starts = {start for step in range(40) for start in first_tokens(data.batch(step))}
    assert starts == {0, 1}
    assert data.evaluation(0)[0].y_WT.max() == 16


@pytest.mark.parametrize(("changes", "split"), [({"train": np.arange(16)}, "train"), ({"val": np.arange(9)}, "val")])
def test_a_text_shorter_than_a_window_is_refused(changes, split):
    with pytest.raises(NlqError, match=f"the {split} split holds"):
        paper(**changes)


# --- both ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [windows, paper])
def test_training_batches_do_not_depend_on_evaluation(make):
    plain, other = make(), make(eval_windows=3)
    if make is paper:
        other = make(eval_windows=3, eval_every=7, steps=300)
    for step in range(40):
        if step % 3 == 0:
            other.evaluation(step)
        assert np.array_equal(plain.batch(step).x_BT, other.batch(step).x_BT)


def hash_of(data: WindowsData | PaperData, start: int, stop: int, previous: str = "") -> str:
    for step in range(start, stop):
        previous = rolling_hash(previous, data.batch(step))
    return previous


@pytest.mark.parametrize("make", [windows, paper])
def test_twenty_steps_hash_as_ten_and_ten_more_after_a_resume(make):
    assert hash_of(make(), 0, 20) == hash_of(make(), 10, 20, hash_of(make(), 0, 10))


def test_the_hash_depends_on_values_and_order_alone():
    batch = Batch(np.arange(6).reshape(2, 3), np.arange(1, 7).reshape(2, 3))
    same = Batch(np.asfortranarray(batch.x_BT.astype(np.int32)), batch.y_BT.astype(np.uint16)[::1])
    assert rolling_hash("", batch) == rolling_hash("", same)
    swapped = Batch(batch.x_BT[::-1], batch.y_BT[::-1])
    other_target = Batch(batch.x_BT, batch.y_BT + 1)
    assert len({rolling_hash(p, b) for p in ("", "00") for b in (batch, swapped, other_target)}) == 6


def test_the_hash_is_the_one_of_the_first_release():
    batch = Batch(np.array([[1, 2]]), np.array([[2, 3]]))
    assert (
        rolling_hash(rolling_hash("", batch), batch)
        == "07f3fdb61b52d52be830dab09541aeb60fadab0ca518c8c85d136bdbcf742c8b"
    )


# --- from prepared tokens --------------------------------------------------------------------------------------------


def run_spec(data, **train) -> RunSpec:
    values = {"steps": 20, "batch_tokens": 64, "eval_every": 5, "eval_windows": 9, **train}
    return RunSpec(data=data, model=ModelSpec(context=16), train=TrainSpec(**values), seed=1)


@pytest.mark.parametrize("plan", ["windows", "paper"])
def test_a_run_reads_its_prepared_tokens(corpus, cache, plan):
    spec = run_spec(corpus(val_fraction=0.3, plan=plan), eval_windows=200)
    found = prepare(spec.data, cache)
    data = run_data(spec, found)
    assert data.batch(3).x_BT.shape == (4, 16)
    for held_out in data.evaluation(5):
        tokens, bounds = found.tokens(held_out.split), found.doc_bounds(held_out.split)
        ends = held_out.y_WT == found.manifest.end_of_text
        assert ends.any()
        # the document changes right after each end-of-text id, and nowhere else
        assert np.array_equal(np.diff(held_out.doc_ids_WT, axis=1) == 1, ends[:, :-1])
        assert len(bounds) == (tokens == found.manifest.end_of_text).sum() + 1


def test_select_and_confirm_share_no_document_id(corpus, cache):
    spec = run_spec(corpus(val_fraction=0.3), eval_windows=10_000)
    select, confirm = run_data(spec, prepare(spec.data, cache)).evaluation(0)
    assert not set(select.doc_ids_WT.ravel()) & set(confirm.doc_ids_WT.ravel())


@pytest.mark.parametrize("plan", ["windows", "paper"])
def test_a_corpus_shorter_than_one_batch_is_refused(corpus, cache, plan):
    spec = run_spec(corpus(plan=plan), batch_tokens=16_000_000)
    with pytest.raises(NlqError, match="one batch needs 1000000"):
        run_data(spec, prepare(spec.data, cache))


def test_a_single_file_serves_a_run(single, cache):
    spec = run_spec(single("to be or not to be, that is the question\n" * 100, val_fraction=0.1))
    select, confirm = run_data(spec, prepare(spec.data, cache)).evaluation(0)
    assert len(np.unique(select.doc_ids_WT)) == len(np.unique(confirm.doc_ids_WT)) == 1


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("plan", ["windows", "paper"])
def test_ten_thousand_batches_do_not_grow_memory(tmp_path, plan):
    size = 32 << 20
    (tmp_path / "train.bin").write_bytes(np.zeros(size, np.uint8).tobytes())
    tokens = np.memmap(tmp_path / "train.bin", dtype=np.uint16, mode="r")
    held_out = np.zeros(2048, np.uint16)
    data = (
        windows(train=tokens, select=held_out, confirm=held_out, context=256)
        if plan == "windows"
        else paper(train=tokens, context=256, val=held_out)
    )
    data.batch(0)
    before = resident_bytes()
    for step in range(1, 10_001):
        data.batch(step)
    assert resident_bytes() - before < size // 4
