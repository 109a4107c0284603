"""Runs made elsewhere: from a YAML to the table, and what must never happen to them or because of them."""

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nlq.core.run import State
from nlq.store.reader import Reader

Run = Callable[..., object]

CURVE = "step,train_loss,val_loss\n0,5.5,5.6\n100,3.1,3.2\n200,2.5,2.6\n"
WANDB = (
    '"Step","run-a - val/loss","run-a - val/loss__MIN","run-a - val/loss__MAX","run-b - val/loss"\n'
    '"0","5.6","5.0","6.0","5.7"\n"100","3.2","3.0","4.0",""\n"200","2.6","2.5","2.7","2.4"\n'
)
LOG = (
    "number of parameters: 0.80M\n"
    "step 0: train loss 5.5, val loss 5.6\niter 0: loss 5.51, time 900.00ms, mfu -100.00%\n"
    "iter 10: loss 4.2000, time 12.00ms\nstep 100: train loss 3.1, val loss 3.2\nsaving checkpoint to out\n"
    "step 200: train loss 2.5, val loss 2.6\n"
)
SHAPE = "base: {model: {layers: 1, heads: 2, width: 16, context: 16, vocab: 64}}\n"


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    """Writes a curve and the YAML that imports it."""

    def write(yaml: str, curve: str | bytes = CURVE, name: str = "a.csv") -> Path:
        (tmp_path / name).write_bytes(curve if isinstance(curve, bytes) else curve.encode())
        path = tmp_path / "import.yaml"
        path.write_text(yaml, encoding="utf-8")
        return path

    return write


def one(file: str = "a.csv", more: str = "") -> str:
    return f"runs: [{{file: {file}, arm: a{more}}}]"


def losses(tmp_path: Path, split: str = "val") -> dict[int, float]:
    reader = Reader(tmp_path / "runs.db")
    (run,) = reader.runs()
    return {p.step: p.loss_nats for p in reader.evals([run.run_id])[run.run_id] if p.split == split}


@pytest.mark.parametrize(
    ("name", "text", "more"),
    [
        ("a.csv", CURVE, ""),
        ("a.csv", "\ufeff" + CURVE.replace(",", ";").replace("\n", "\r\n"), ""),
        ("a.csv", CURVE.replace("val_loss", "loss"), ", columns: {val: loss}"),
        ("a.csv", WANDB, ", columns: {run: run-a}"),
        ("log.txt", LOG, ""),
        ("a.csv", LOG, ", format: log"),
    ],
    ids=["csv", "semicolons", "other column", "wandb", "log", "format"],
)
def test_every_format_gives_the_same_curve(nlq: Run, put: Run, tmp_path: Path, name: str, text: str, more: str) -> None:
    assert nlq("import", put(one(name, more), text, name)).code == 0
    assert losses(tmp_path) == {0: 5.6, 100: 3.2, 200: 2.6}


def test_a_gap_in_a_chart_is_no_evaluation(nlq: Run, put: Run, tmp_path: Path) -> None:
    nlq("import", put(one(more=", columns: {run: run-b}"), WANDB))
    assert losses(tmp_path) == {0: 5.7, 200: 2.4}


def test_a_log_has_losses_of_batches_too(nlq: Run, put: Run, tmp_path: Path) -> None:
    nlq("import", put(one("log.txt"), LOG, "log.txt"))
    assert losses(tmp_path, "batch") == {0: 5.51, 10: 4.2}
    assert losses(tmp_path, "train") == {0: 5.5, 100: 3.1, 200: 2.5}


def test_the_folder_of_the_papers_code(nlq: Run, put: Run, tmp_path: Path) -> None:
    """Rows that were never reached have the count 0; what is pickled beside them is not opened."""
    folder = tmp_path / "out"
    folder.mkdir()
    rows = [[200.0, 5.5, 0.1], [200.0, 3.25, 0.1], [200.0, 2.5, 0.1], [0.0, 0.0, 0.0]]
    torch.save(torch.tensor(rows), folder / "eval_val_tensor.pt")
    torch.save(torch.tensor(rows[:2]), folder / "tensor.pt")
    (folder / "model_args.pkl").write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    assert nlq("import", put(one("out"))).code == 0
    assert losses(tmp_path) == {0: 5.5, 1000: 3.25, 2000: 2.5}
    assert losses(tmp_path, "batch") == {0: 5.5, 1000: 3.25}
    assert not (tmp_path / "owned").exists()


TABLE = f"""
name: mine
baseline: tuned
{SHAPE}
runs:
  - {{file: a.csv, arm: tuned, label: "Tuned", point: {{optim.lr_max: 1e-3, optim.weight_decay: 0.1}}}}
  - {{file: b.csv, arm: tuned, point: {{optim.lr_max: 2e-3, optim.weight_decay: 0.1}}}}
  - {{final: {{step: 200, val_loss: 2.5}}, arm: printed, settings: {{model.variant: nonlinear_q}}}}
  - {{diverged: 150, arm: gone}}
"""


def test_tables_figures_and_commands_know_imported_runs(nlq: Run, put: Run, tmp_path: Path) -> None:
    put("", CURVE.replace("2.6", "2.55"), "b.csv")
    assert nlq("import", put(TABLE)).code == 0
    table = json.loads(nlq("report", "--table1", "--all", "--json").out)
    rows = {(row["arm"], row["lr_max"]): row for row in table["rows"]}
    assert {row["matched"] for row in table["rows"]} == {None}
    assert "imported: data order and evaluation windows are not known" in table["notes"]
    assert rows["tuned", 2e-3]["is_reference"]
    assert rows["tuned", 2e-3]["weight_decay"] == 0.1
    assert rows["tuned", 2e-3]["lr_min"] is None
    assert rows["printed", None]["delta_ll"] == pytest.approx(0.05 / 2.55)
    assert rows["printed", None]["delta_non_embedding_params"] == 2 * 16
    assert rows["gone", None]["status"] == "diverged at step 150"
    for command in (["status"], ["status", "--watch"], ["report", "--table1"], ["export", "evals"], ["db", "check"]):
        assert nlq(*command).code == 0
    for figure in ("training-dynamics", "relative-improvement", "lr-sensitivity", "tuning-curve", "seeds"):
        assert nlq("plot", figure).code == 0
    for figure in ("paired-difference", "throughput", "loss-vs-time"):
        done = nlq("plot", figure)
        assert (done.code, "imported" in done.err) == (2, True)
    run = json.loads(nlq("status", "--json").out)["runs"][0]
    assert json.loads(nlq("show", run["run_id"], "--json").out)["spec"]["data"]["corpus"] == "imported"
    assert "imported from" in nlq("logs", run["run_id"]).err
    assert "imported from" in nlq("logs", run["run_id"], "--follow").err


def test_nothing_changes_an_imported_run(nlq: Run, put: Run, tmp_path: Path) -> None:
    put("", name="b.csv")
    nlq("import", put(TABLE))
    before = [(run.run_id, run.state) for run in Reader(tmp_path / "runs.db").runs()]
    assert {state for _, state in before} == {State.COMPLETED, State.DIVERGED}
    for command in (["cancel"], ["retry"], ["priority", 5]):
        nlq(*command, "--sweep", "mine")
    assert nlq("work").code == 0
    assert [(run.run_id, run.state) for run in Reader(tmp_path / "runs.db").runs()] == before


def test_the_same_again_changes_nothing_and_another_file_another_run(nlq: Run, put: Run, tmp_path: Path) -> None:
    spec = put(one())
    assert json.loads(nlq("import", spec, "--json").out)["runs"][0]["is_new"] is True
    first = Reader(tmp_path / "runs.db").runs()
    again = json.loads(nlq("import", spec, "--json").out)["runs"][0]
    assert again["is_new"] is False
    assert Reader(tmp_path / "runs.db").runs() == first
    put(one(), CURVE.replace("2.6", "2.7"))
    nlq("import", spec)
    reader = Reader(tmp_path / "runs.db")
    assert len(reader.runs()) == 2
    assert [m.run.run_id for m in reader.sweep().members] == [reader.runs()[1].run_id]


def test_files_of_a_glob_are_seeds(nlq: Run, put: Run, tmp_path: Path) -> None:
    put("", CURVE.replace("2.6", "2.7"), "b.csv")
    nlq("import", put(one("'*.csv'", ", seed: 5")))
    members = Reader(tmp_path / "runs.db").sweep().members
    assert [(m.run.seed, Path(m.run.imported_from).name) for m in members] == [(5, "a.csv"), (6, "b.csv")]


def test_a_dry_run_writes_nothing(nlq: Run, put: Run, tmp_path: Path) -> None:
    spec = put(one())
    before = set(tmp_path.iterdir())
    assert "nothing written" in nlq("import", spec, "--dry-run").err
    assert set(tmp_path.iterdir()) == before


def test_the_example_can_be_imported(nlq: Run, repository: Path) -> None:
    assert nlq("import", repository / "specs" / "import_example.yaml").code == 0
    assert "Res. GELU" in nlq("report", "--table1").out


BAD = {
    "missing file": (one("b.csv"), CURVE, "import.yaml:1:9: runs.0.file", 'did you mean "a.csv"?'),
    "missing column": (one(), "step,loss\n0,1\n", 'a.csv:1:1: no column "val_loss" (val)', "columns: {val: NAME}"),
    "no such column": (one(more=", columns: {val: val}"), CURVE, 'no column "val"', "val_loss"),
    "text for a number": (one(), CURVE + "300,x,abc\n", "a.csv:5:3: val_loss: must be a number, found 'abc'", ""),
    "underscores": (one(), CURVE + "300,2,2_1\n", "must be a number, found '2_1'", ""),
    "half a step": (one(), CURVE + "300.5,2,2\n", "must be a whole step", ""),
    "unsorted": (one(), CURVE + "150,2,2\n", "a.csv:5:2: train_loss: step 150 is after step 200", "sort the file"),
    "twice": (one(), CURVE + "200,2,2\n", "step 200 is there twice", ""),
    "ragged": (one(), CURVE + "300,2\n", "2 fields under 3 names", ""),
    "latin1": (one(), CURVE.encode() + b"300,2,\xe92\n", "a.csv:5:7: not UTF-8", "iconv"),
    "empty": (one(), "", "is empty", ""),
    "only names": (one(), "step,val_loss\n", 'no number in column "val_loss"', ""),
    "no log": (one("a.txt"), "nothing\n", 'no line such as "step 1000', ""),
    "nan": (one(), CURVE + "300,nan,nan\n", "the loss of step 300 is nan", "diverged: 300"),
    "perplexity": (one(), CURVE + "300,2,20000\n", "no loss in nats", ""),
    "huge number": (one(), CURVE + f"{'9' * 5000},2,2\n", "must be a number, found '999", ""),
    "beyond a float": (one(), CURVE + "300,2,1e999\n", "the loss of step 300 is inf", ""),
    "many columns": (one(), ",".join(["a"] * 10**6) + "\n1\n", "more than 10,000 columns", ""),
    "long field": (one(), CURVE + "300,2," + "9" * 200_000 + "\n", "a.csv:5", ""),
    "two runs": (one(), WANDB, "2 runs: run-a, run-b", "columns: {run: run-a}"),
    "unknown key": ("rns: []", CURVE, "import.yaml:1:1: rns: unknown key", 'did you mean "runs"?'),
    "unknown key of a run": (one(more=", sed: 1"), CURVE, "runs.0.sed: unknown key", 'did you mean "seed"?'),
    "unknown setting": (one(more=", point: {optim.lr: 1}"), CURVE, "optim.lr: unknown setting", "optim.lr_min"),
    "value of a setting": (one(more=", point: {optim.lr_max: fast}"), CURVE, "must be a number, found 'fast'", ""),
    "no arm": ("runs: [{file: a.csv}]", CURVE, "every run needs the name of its arm", "arm: baseline"),
    "no losses": ("runs: [{arm: a}]", CURVE, "no losses", "file: curve.csv"),
    "no baseline": ("baseline: b\n" + one(), CURVE, 'no run is of the arm "b"', "known: a"),
    "unknown format": (one(more=", format: cvs"), CURVE, 'no format "cvs"', 'did you mean "csv"?'),
    "unfinished": (one(more=", settings: {train.steps: 900}"), CURVE, "ends at step 200 of 900", "diverged: 200"),
    "longer": (one(more=", settings: {train.steps: 100}"), CURVE, "goes on to step 200", "train.steps: 200"),
    "report step": (one(more=", settings: {train.report_step: 60}"), CURVE, "evaluated at step 60", "100"),
    "twins": ("runs: [{file: a.csv, arm: a}, {file: a.csv, arm: a}]", CURVE, "a second run of arm", "seed: 1"),
    "shape": (SHAPE.replace("heads: 2", "heads: 3") + one(), CURVE, "3 heads do not divide width 16", ""),
    "option": (SHAPE.replace("vocab", "mlp.ration: 3, vocab") + one(), CURVE, "import.yaml:1:", "ratio"),
    "marker": (one(more=", settings: {data.corpus: text}"), CURVE, "import.yaml:1:41: data.corpus: an import", "leave"),
    "a run of no chart": (one(more=", columns: {run: b}"), CURVE, 'no column "b" (run)', "columns: {run: NAME}"),
    "bad final": ("runs: [{final: {step: 5, val_loss: low}, arm: a}]", CURVE, "found 'low'", "val_loss: 2.9441"),
    "code": ("runs: !!python/object/apply:os.system ['touch owned']", CURVE, "is refused", ""),
    "code in a run": (one(more=", label: !!python/name:os.system x"), CURVE, "is refused", ""),
    "config that runs": (one(more=", config: c.py"), CURVE, "c.py:2:1: max_iters: more than numbers", "never run"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("dry", [True, False], ids=["dry run", "import"])
def test_bad_input(nlq: Run, put: Run, tmp_path: Path, kind: str, dry: bool) -> None:
    yaml, curve, message, hint = BAD[kind]
    put("", "nothing\n", "a.txt")
    put("", "import os\nmax_iters = __import__('os').system('touch owned')\n", "c.py")
    spec = put(yaml, curve)
    before = set(tmp_path.iterdir())
    done = nlq("import", spec, *(["--dry-run"] if dry else []))
    assert done.code == 2
    assert message in done.err
    assert hint in done.err
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) < 24
    assert max(map(len, done.err.splitlines())) < 400
    assert done.out == ""
    assert set(tmp_path.iterdir()) == before


class Malicious:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch owned",)


@pytest.mark.parametrize("kind", ["code", "code in a legacy file", "a dict", "no columns", "packed", "text"])
def test_a_tensor_file_that_is_none(nlq: Run, put: Run, tmp_path: Path, kind: str) -> None:
    folder, good = tmp_path / "out", torch.zeros(3, 3)
    folder.mkdir()
    path = folder / "eval_val_tensor.pt"
    wrong = {"a dict": {"loss": good}, "no columns": torch.zeros(3)}.get(kind, Malicious())
    torch.save(wrong, path, _use_new_zipfile_serialization=kind != "code in a legacy file")
    if kind == "packed":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("data.pkl", bytes(10**7))
    if kind == "text":
        path.write_text("no tensor")
    done = nlq("import", put(one("out")))
    assert done.code == 2
    assert "eval_val_tensor.pt: " in done.err
    assert "save it again with torch.save" in done.err
    assert not (tmp_path / "owned").exists()
    assert not (tmp_path / "runs.db").exists()


def test_losses_after_a_divergence_may_be_gone(nlq: Run, put: Run, tmp_path: Path) -> None:
    assert nlq("import", put(one(more=", diverged: 300"), CURVE + "300,nan,nan\n400,nan,nan\n")).code == 0
    (run,) = Reader(tmp_path / "runs.db").runs()
    assert (run.state, run.diverged_step, run.steps_planned) == (State.DIVERGED, 300, 400)
