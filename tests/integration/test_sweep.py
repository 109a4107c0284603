"""From a spec to Table 1 and figures, through the command line, with real training on a small text."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from nlq.core.run import State
from nlq.models.transformer import Transformer
from nlq.plots._make import titles
from nlq.store.database import open_writable
from nlq.store.reader import Reader

Run = Callable[..., object]

TWO_ARMS = """
name: two
arms:
  baseline: {}
  nonlinear-q: {model.variant: nonlinear_q, label: "α-λ ⭐"}
grid: {optim.lr_max: [1e-3, 3e-3]}
seeds: [0, 1]
"""


def no_constants(text: str) -> object:
    """JSON as a strict parser reads it."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def losses(db: Path) -> pd.DataFrame:
    reader = Reader(db)
    ids = [run.run_id for run in reader.runs()]
    return reader.steps(ids).drop(columns="step_ms")


def test_from_a_spec_to_a_table_and_figures(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    spec = write_spec(TWO_ARMS)
    assert nlq("sweep", spec).code == 0
    rows = no_constants(nlq("report", "--table1", "--format", "json").out)["rows"]
    assert [row["arm"] for row in rows] == ["baseline", "nonlinear-q"]
    for row in rows:
        assert row["n_seeds"] == 2
        assert row["val_loss_nats"] > 0
        assert row["val_loss_interval"][0] < row["val_loss_nats"] < row["val_loss_interval"][1]
        assert row["matched"] is not False
    low, high = rows[1]["delta_ll_interval"]
    assert low < rows[1]["delta_ll"] < high
    assert rows[1]["delta_non_embedding_params"] == 2 * 16
    assert "α-λ ⭐" in nlq("report", "--table1", "--all").out
    for name in ("training-dynamics", "relative-improvement"):
        for suffix in ("png", "pdf", "svg"):
            assert nlq("plot", name, "--out", f"f.{suffix}").code == 0
            assert (tmp_path / f"f.{suffix}").stat().st_size > 1000
    assert (tmp_path / nlq("plot", "training-dynamics").out.strip()).is_file()
    lacks = {"scaling-fit": "no control"}
    for name in titles():
        done = nlq("plot", name)
        assert done.code == (2 if name in lacks else 0), done.err
        assert lacks.get(name, "") in done.err
        assert ("→" in done.err) == (name in lacks)


def test_the_same_sweep_again_trains_nothing(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    spec = write_spec(TWO_ARMS)
    nlq("sweep", spec, "--runner", "inline")
    before = losses(tmp_path / "runs.db")
    again = nlq("sweep", spec, "--runner", "inline")
    assert "0 to train" in again.err
    pd.testing.assert_frame_equal(losses(tmp_path / "runs.db"), before)
    assert all(len(Reader(tmp_path / "runs.db").attempts(i)) == 1 for i in before["run_id"].unique())


def test_the_same_spec_gives_the_same_bits_in_any_process(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    spec = write_spec(TWO_ARMS)
    nlq("sweep", spec, "--slots", 2, "--db", "processes.db")
    nlq("sweep", spec, "--slots", 2, "--runner", "inline", "--db", "inline.db")
    processes, inline = losses(tmp_path / "processes.db"), losses(tmp_path / "inline.db")
    assert len(processes) == 8 * 12
    pd.testing.assert_frame_equal(processes, inline, check_exact=True)
    for name in ("loss_nats", "grad_norm", "lr"):
        assert (processes[name].to_numpy().tobytes()) == inline[name].to_numpy().tobytes()


def test_every_arm_of_a_seed_reads_the_same_batches(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    nlq("sweep", write_spec(TWO_ARMS), "--runner", "inline")
    reader = Reader(tmp_path / "runs.db")
    hashes: dict[int, set[str]] = {}
    for member in reader.sweep("two").members:
        last = reader.evals([member.run.run_id])[member.run.run_id][-1]
        hashes.setdefault(member.run.seed, set()).add(last.data_hash)
    assert [len(found) for found in hashes.values()] == [1, 1]
    assert hashes[0] != hashes[1]


def test_batches_do_not_depend_on_evaluation(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    nlq(
        "sweep", write_spec("arms: {a: {}, b: {train.eval_every: 5}, c: {train.eval_windows: 4}}"), "--runner", "inline"
    )
    reader = Reader(tmp_path / "runs.db")
    assert {reader.evals([r.run_id])[r.run_id][-1].data_hash for r in reader.runs()} != {""}
    assert len({reader.evals([r.run_id])[r.run_id][-1].data_hash for r in reader.runs()}) == 1
    train = reader.steps([r.run_id for r in reader.runs()]).groupby("step")["loss_nats"].nunique()
    assert set(train) == {1}


def test_unmatched_data_is_said(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    nlq("sweep", write_spec(TWO_ARMS), "--runner", "inline")
    assert "unmatched" not in nlq("report", "--table1").out
    db = open_writable(tmp_path / "runs.db")
    (run,) = db.execute("SELECT run FROM sweep_runs WHERE arm = 'nonlinear-q' LIMIT 1").fetchone()
    db.execute("UPDATE evals SET data_hash = 'other' WHERE run = ?", [run])
    db.close()
    assert "unmatched data" in nlq("report", "--table1", "--all").out


def test_one_failing_run_does_not_stop_the_rest(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    spec = write_spec("name: s\narms: {a: {}, b: {model.layers: 2}}\nseeds: [0, 1]")
    with pytest.MonkeyPatch.context() as patch:

        def initialise(model: Transformer, seed: int) -> None:
            if len(model.blocks) == 2:
                raise RuntimeError("cannot start")

        patch.setattr("nlq.models.build.initialise", initialise)
        done = nlq("sweep", spec, "--runner", "inline")
    assert done.code == 1
    assert "2 runs failed" in done.err
    assert "RuntimeError: cannot start" in done.err
    states = [run.state for run in Reader(tmp_path / "runs.db").runs()]
    assert states == [State.COMPLETED, State.COMPLETED, State.FAILED, State.FAILED]
    assert nlq("sweep", spec, "--runner", "inline").code == 0
    assert {run.state for run in Reader(tmp_path / "runs.db").runs()} == {State.COMPLETED}


def test_a_run_that_diverges_is_kept_and_said(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    spec = write_spec("arms: {baseline: {}, wild: {optim.lr_max: 1e30, optim.clip: 1e30}}")
    assert nlq("sweep", spec, "--runner", "inline").code == 0
    wild = next(r for r in Reader(tmp_path / "runs.db").runs() if r.spec["optim"]["lr_max"] == 1e30)
    assert wild.state is State.DIVERGED
    assert f"diverged at step {wild.diverged_step}" in nlq("report", "--table1").out
    assert f"diverged at step {wild.diverged_step}" in nlq("status").out
    for command in (["status", "--json"], ["show", wild.run_id, "--json"], ["report", "--table1", "--format", "json"]):
        no_constants(nlq(*command).out)


def test_a_micro_batch_changes_nothing_but_rounding(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    precise = "train.precision: float64"
    nlq("sweep", write_spec(f"arms: {{a: {{{precise}}}}}"), "--runner", "inline", "--db", "whole.db")
    parts = write_spec(f"arms: {{a: {{{precise}, train.micro_batch: 1}}}}")
    nlq("sweep", parts, "--runner", "inline", "--db", "parts.db")
    pd.testing.assert_frame_equal(losses(tmp_path / "whole.db"), losses(tmp_path / "parts.db"), rtol=1e-9, atol=0)


def test_bf16_trains(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    assert nlq("sweep", write_spec("arms: {a: {train.precision: bf16}}"), "--runner", "inline").code == 0
    frame = losses(tmp_path / "runs.db")
    assert frame["loss_nats"].iloc[-1] < frame["loss_nats"].iloc[0]


@pytest.mark.parametrize("plan", ["windows", "paper"])
def test_both_plans_report(nlq: Run, write_spec: Run, plan: str) -> None:
    assert (
        nlq("sweep", write_spec(f"arms: {{a: {{}}, b: {{model.layers: 2}}}}\ngrid: {{data.plan: [{plan}]}}")).code == 0
    )
    found = no_constants(nlq("report", "--table1", "--format", "json").out)
    assert found["split"] == ("confirm" if plan == "windows" else "val")
    assert all(row["val_loss_nats"] for row in found["rows"])


def test_the_dry_run_names_the_runs_that_come(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    spec = write_spec(TWO_ARMS)
    rows = no_constants(nlq("sweep", spec, "--dry-run", "--json").out)["runs"]
    assert not (tmp_path / "runs.db").exists()
    nlq("sweep", spec, "--runner", "inline")
    runs = Reader(tmp_path / "runs.db").runs()
    assert [row["spec_key"] for row in rows] == [run.spec_key for run in runs]
    assert [row["non_embedding_params"] for row in rows] == [run.non_embedding_params for run in runs]


def test_the_papers_table_expands_on_any_machine(nlq: Run, repository: Path) -> None:
    found = no_constants(nlq("sweep", repository / "specs/paper_table1.yaml", "--dry-run", "--json").out)
    sizes = [(r["non_embedding_params"], r["total_params"], r["tokens"]) for r in found["runs"]]
    baseline, wide, variant = ((n, n + 51_328 * 768, 60_002 * 491_520) for n in (84_953_856, 95_570_688, 84_972_288))
    assert sizes == [baseline, wide, wide, variant, variant, variant]
    assert [r["spec"]["optim"]["lr_max"] for r in found["runs"]] == [6e-4, 6e-4, 5.66e-4, 2.4e-3, 4e-3, 3.6e-3]
    assert {r["spec"]["train"]["report_step"] for r in found["runs"]} == {60_000}
    assert any("provisional" in note for note in found["notes"])


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
@pytest.mark.parametrize("kind", ["steps", "evals"])
def test_export(nlq: Run, write_spec: Run, tmp_path: Path, kind: str, form: str) -> None:
    nlq("sweep", write_spec(TWO_ARMS), "--runner", "inline")
    out = tmp_path / f"rows.{form}"
    assert nlq("export", kind, "--arm", "nonlinear-q", "--out", out).code == 0
    read = {"csv": pd.read_csv, "json": pd.read_json, "parquet": pd.read_parquet}[form]
    frame = read(out, dtype={"run_id": str}) if form != "parquet" else read(out)
    assert len(frame) == (4 * 12 if kind == "steps" else 4 * 4 * 2)
    assert set(frame["arm"]) == {"nonlinear-q"}
    assert sorted(frame["optim.lr_max"].unique()) == [1e-3, 3e-3]
    one = frame["run_id"].iloc[0]
    printed = nlq("export", kind, "--run", one, "--format", "csv").out
    assert len(printed.splitlines()) == 1 + len(frame) // 4


def test_status_show_and_listings(nlq: Run, write_spec: Run, tmp_path: Path) -> None:
    nlq("sweep", write_spec(TWO_ARMS), "--runner", "inline")
    before = (tmp_path / "runs.db").read_bytes()
    states = no_constants(nlq("status", "--json").out)
    assert states["states"] == {"completed": 8}
    run_id = states["runs"][0]["run_id"]
    shown = nlq("show", run_id[:7]).out
    assert "optim.lr_max" in shown
    assert "completed after 12 steps" in shown
    details = no_constants(nlq("show", run_id, "--json").out)
    assert details["attempts"][0]["ended"] == "completed"
    assert 0 < details["speed"]["step_ms_median"] <= details["speed"]["step_ms_95th"]
    assert 0 < details["speed"]["eval_share"] < 1
    assert details["speed"]["peak_memory_bytes"] > 10**7
    assert details["speed"]["mfu"] is details["speed"]["energy_joules"] is None
    assert len(no_constants(nlq("data", "ls", "--json").out)) >= 1
    assert (tmp_path / "runs.db").read_bytes() == before


class FakeMeter:
    """GPUs that use twelve joules and a half in each attempt."""

    def __init__(self, *_: object) -> None:
        pass

    def joules(self) -> float:
        return 12.5


def test_energy_is_recorded_also_of_a_run_that_fails(
    nlq: Run, write_spec: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise RuntimeError("gone")

    monkeypatch.setattr("nlq.worker.Meter", FakeMeter)
    spec = write_spec("arms: {a: {}}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nlq.training.loop.proceed", gone)
        assert nlq("sweep", spec, "--runner", "inline").code == 1
    assert nlq("sweep", spec, "--runner", "inline").code == 0
    (run,) = no_constants(nlq("status", "--json").out)["runs"]
    assert run["energy_joules"] == 25.0
    details = no_constants(nlq("show", run["run_id"], "--json").out)
    assert details["speed"]["energy_joules"] == 25.0
    assert [one["energy_joules"] for one in details["attempts"]] == [12.5, 12.5]


def test_slots_auto_tries_how_to_share_the_cores(nlq: Run, write_spec: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nlq.runners._slots.cores", lambda: 2)
    monkeypatch.setattr("nlq.commands.slots.cores", lambda: 2)
    monkeypatch.setattr("nlq.commands.dry_run.estimated_seconds", lambda _spec, _cache, slots: 60.0 * len(slots))
    done = nlq("sweep", write_spec(TWO_ARMS), "--runner", "inline", "--slots", "auto")
    assert "1 slot of 2 threads (cpu): about 1 m 00 s" in done.err
    assert "8 to train, on 1 slot of 2 threads" in done.err


def test_slots_in_words_are_refused(nlq: Run, write_spec: Run) -> None:
    done = nlq("sweep", write_spec(TWO_ARMS), "--slots", "many")
    assert (done.code, "--slots many: a number, or auto" in done.err) == (2, True)


def test_what_needs_no_database(nlq: Run) -> None:
    assert len(no_constants(nlq("variants", "--json").out)) == 7
    one = no_constants(nlq("variants", "nonlinear_q", "--counts", "--json").out)
    assert one[0]["non_embedding_params"] == 84_972_288
    assert {f["what"] for f in no_constants(nlq("doctor", "--json").out)} >= {
        "torch",
        "GPU",
        "precision",
        "cache folder",
    }
    assert nlq("doctor").code == 0
    assert "training-dynamics" in nlq("plot", "--list").out
    assert "2.39" in nlq("report", "--published").out
    assert nlq("--version").out.startswith("nlq ")
