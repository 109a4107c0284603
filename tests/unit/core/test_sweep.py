"""From spec text to runs: order, equality, and every mistake at once with its place."""

import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nlq.core.document import parse
from nlq.core.errors import Position, SpecError
from nlq.core.spec import ADDED_LATER, RunSpec, defaults_resolved, dotted, hashed_settings, nested, spec_key
from nlq.core.sweep import Sweep, expand


def sweep_of(text: str) -> Sweep:
    return expand(parse(textwrap.dedent(text), "s.yaml", Path()), defaults_resolved)


def mistakes_of(text: str) -> dict[str, tuple[str, Position | None, str]]:
    with pytest.raises(SpecError) as caught:
        sweep_of(text)
    return {m.path: (m.message, m.position, m.hint) for m in caught.value.mistakes}


def test_order_is_arms_then_points_then_seeds() -> None:
    sweep = sweep_of("""
        arms: {b: {}, a: {model.layers: 2}}
        grid: {optim.lr_max: [2e-3, 1e-3], optim.weight_decay: [0.1, 0.05]}
        seeds: [1, 0]
        baseline: b
        """)
    got = [(r.arm, r.spec.optim.lr_max, r.spec.optim.weight_decay, r.spec.seed) for r in sweep.runs]
    assert got == [(a, lr, wd, s) for a in "ba" for lr in (2e-3, 1e-3) for wd in (0.1, 0.05) for s in (1, 0)]
    assert [r.key for r in sweep.runs] == [spec_key(r.spec) for r in sweep.runs]


@pytest.mark.parametrize("word", ["1e-3", "5e-05", "3e-6", ".001", "1E-3", "0.001", "1e-03", "1.0e-3"])
def test_every_spelling_of_a_number_arrives_bit_for_bit(word: str) -> None:
    (run,) = sweep_of(f"arms: {{a: {{optim.lr_max: {word}}}}}").runs
    assert run.spec.optim.lr_max == float(word)


def test_whole_numbers_may_be_written_as_floats_but_not_as_text() -> None:
    (run,) = sweep_of("arms: {a: {train.steps: 3e3}}").runs
    assert run.spec.train.steps == 3000
    assert "train.steps" in mistakes_of("arms: {a: {train.steps: '3000'}}")
    assert "train.steps" in mistakes_of("arms: {a: {train.steps: true}}")
    assert "train.steps" in mistakes_of("arms: {a: {train.steps: 2.5}}")
    assert "optim.lr_max" in mistakes_of("arms: {a: {optim.lr_max: .inf}}")


def test_equal_runs_appear_once() -> None:
    assert len(sweep_of("{arms: {a: {}}, grid: {optim.lr_max: [1e-3, 0.001]}, seeds: [0, 0]}").runs) == 1


def test_an_arm_may_have_its_own_points_or_grid() -> None:
    sweep = sweep_of("""
        arms:
          a: {}
          b: {points: [{optim.lr_max: 1e-3, optim.lr_min: 0}, {optim.lr_max: 2e-3}], label: "β ⭐"}
          c: {grid: {optim.lr_max: [5e-3]}}
        grid: {optim: {lr_max: [1e-2]}}
        """)
    assert [(r.arm, r.label, r.spec.optim.lr_max, r.spec.optim.lr_min) for r in sweep.runs] == [
        ("a", "a", 1e-2, 1e-3),
        ("b", "β ⭐", 1e-3, 0.0),
        ("b", "β ⭐", 2e-3, 2e-4),
        ("c", "c", 5e-3, 5e-4),
    ]


def test_forty_swept_settings_are_fine() -> None:
    grid = ", ".join(f"model.query.option{i}: [{i}]" for i in range(40))
    assert len(sweep_of(f"{{arms: {{a: {{}}}}, grid: {{{grid}}}}}").runs) == 1


def test_all_mistakes_at_once_with_line_and_column() -> None:
    found = mistakes_of("""\
        basline: a
        base:
          model: {layers: four, heads: 3, width: 128}
          data: {corps: stdlib}
        arms:
          a: {model.mpl.ratio: 4}
        grid:
          optim.lr_max: [1e-3, 1e-3x]
          optim.weight_decay: []
        seeds: [0, -1]
        """)
    assert found["basline"][1:] == (Position(1, 1), 'basline: did you mean "baseline"?')
    assert found["model.layers"] == ("must be a number, found 'four'", Position(3, 11), "")
    assert found["data.corps"][1:] == (Position(4, 10), 'data.corps: did you mean "data.corpus"?')
    assert found["model.mpl.ratio"][1:] == (Position(6, 7), 'model.mpl.ratio: did you mean "model.mlp"?')
    assert found["optim.lr_max"][:2] == ("must be a number, found '1e-3x'", Position(8, 24))
    assert found["grid.optim.weight_decay"][:2] == ("the list is empty", Position(9, 3))
    assert found["seeds.1"][1] == Position(10, 12)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[1, 2]", ""),
        ("arms: {}", "arms"),
        ("arms: 3", "arms"),
        ("{arms: {a: {}}, grid: {}}", "grid"),
        ("{arms: {a: {}}, grid: {optim.lr_max: 1e-3}}", "grid.optim.lr_max"),
        ("{arms: {a: {}}, grid: {optim.lr: [1e-3]}}", "optim.lr"),
        ("{arms: {a: {}}, grid: {optim.lr_max: [1]}, points: [{optim.lr_max: 1}]}", "points"),
        ("{arms: {a: {}}, points: []}", "points"),
        ("{arms: {a: {}}, points: [3]}", "points.0"),
        ("{arms: {a: {}}, seeds: []}", "seeds"),
        ("{arms: {a: {}}, baseline: b}", "baseline"),
        ("{arms: {a: {model.heads: 3}}}", "model.heads"),
        ("{arms: {a: {model.kv_heads: 3}}}", "model.kv_heads"),
        ("{arms: {a: {train.batch_tokens: 100}}}", "train.batch_tokens"),
        ("{arms: {a: {train.micro_batch: 3}}}", "train.micro_batch"),
        ("{arms: {a: {optim.lr_min: 1, optim.lr_min_ratio: 0.1}}}", "optim.lr_min_ratio"),
        ("{arms: {a: {optim.lr_min: 1}}}", "optim.lr_min"),
        ("{arms: {a: {train.report_step: 301}}}", "train.report_step"),
        ("{arms: {a: {model: 3}}}", "model"),
        ("arms: {a: {}, a: {}}", ""),
        ("arms: {a: !!python/object/apply:os.system [ls]}", ""),
        ("arms: {a: [", ""),
    ],
)
def test_each_kind_of_mistake_is_named(text: str, path: str) -> None:
    found = mistakes_of(text)
    assert path in found
    assert found[path][1] is not None or path == ""


names = st.text("abc", min_size=1, max_size=3)
trees = st.recursive(st.integers(), lambda inner: st.dictionaries(names, inner, min_size=1, max_size=3), max_leaves=8)


@given(st.dictionaries(names, trees, max_size=3))
def test_dotted_and_nested_are_inverse(tree: dict[str, object]) -> None:
    assert nested(dotted(tree)) == tree


def test_a_bare_word_is_a_components_kind() -> None:
    (one,) = sweep_of("arms: {a: {model.query: bottleneck, model.query.rank: 3}}").runs
    (other,) = sweep_of("arms: {a: {model.query.rank: 3, model.query: bottleneck}}").runs
    assert one.spec.model.query == other.spec.model.query == {"kind": "bottleneck", "rank": 3}


def test_execution_settings_and_names_do_not_change_the_key() -> None:
    spec = defaults_resolved(RunSpec())
    changed = spec.resolved(
        data={"path": "/x", "tokenizer_path": "/y"}, model={"variant": "other"}, train={"micro_batch": 4}
    )
    assert spec_key(changed) == spec_key(spec)
    assert spec_key(spec.resolved(optim={"lr_max": 2e-3})) != spec_key(spec)


def test_every_other_setting_changes_the_key() -> None:
    hashed = hashed_settings(defaults_resolved(RunSpec()))
    assert {"data.corpus", "model.width", "optim.eps", "train.precision", "train.eval_every", "seed"} <= set(hashed)
    assert not set(ADDED_LATER) - set(dotted(RunSpec().model_dump()))
