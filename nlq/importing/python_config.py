"""Settings out of a Python file of nanoGPT's kind, read as syntax: numbers and arithmetic only. Nothing is run."""

import ast
import operator
from collections.abc import Callable, Mapping
from pathlib import Path

from nlq.core.errors import Mistake, NlqError, Position, SpecError
from nlq.importing.files import text_of

SETTINGS = {
    "n_layer": "model.layers",
    "n_head": "model.heads",
    "n_embd": "model.width",
    "block_size": "model.context",
    "vocab_size": "model.vocab",
    "learning_rate": "optim.lr_max",
    "min_lr": "optim.lr_min",
    "weight_decay": "optim.weight_decay",
    "beta1": "optim.beta1",
    "beta2": "optim.beta2",
    "grad_clip": "optim.clip",
    "warmup_iters": "optim.warmup_steps",
    "lr_decay_iters": "optim.decay_steps",
    "max_iters": "train.steps",
    "eval_interval": "train.eval_every",
}
"""nanoGPT's names; `train.batch_tokens` is the product of BATCH."""

BATCH = ("batch_size", "block_size", "gradient_accumulation_steps")
LONGEST = 1 << 20
LARGEST = 1e18

_BINARY: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


def settings_of(path: Path) -> dict[str, float]:
    """Dotted settings that a Python file sets. Raises SpecError where one of them is more than arithmetic."""
    names = _numbers(path)
    found = {setting: names[name] for name, setting in SETTINGS.items() if name in names}
    if all(name in names for name in BATCH):
        found["train.batch_tokens"] = names[BATCH[0]] * names[BATCH[1]] * names[BATCH[2]]
    if not found:
        raise NlqError(f"{path}: sets none of {', '.join(SETTINGS)}", "leave out config")
    return found


def _numbers(path: Path) -> dict[str, float]:
    """Names that are set to numbers at the outermost level, the last value of each."""
    names: dict[str, float] = {}
    seen: set[ast.AST] = set()
    tree = _parsed(path)
    for statement in tree.body:
        found = _assignment(statement)
        if found is None:
            continue
        target, value = found
        seen.add(target)
        try:
            names[target.id] = _value(value, names)
        except (ValueError, ArithmeticError, RecursionError) as error:
            names.pop(target.id, None)
            if _is_set_and_wanted(target):
                raise _refused(path, target, str(error)) from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node not in seen and _is_set_and_wanted(node):
            raise _refused(path, node, "set by more than one plain assignment")
    return names


def _is_set_and_wanted(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store) and node.id in {*SETTINGS, *BATCH}


def _parsed(path: Path) -> ast.Module:
    text = text_of(path)
    try:
        if len(text) > LONGEST:
            raise ValueError("larger than 1 MiB")
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        raise SpecError([Mistake("", f"not Python: {error}", Position(line, 1))], str(path)) from error


def _assignment(statement: ast.stmt) -> tuple[ast.Name, ast.expr] | None:
    """The one name that a plain assignment sets, and to what."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0], statement.value
    if isinstance(statement, ast.AnnAssign) and statement.value and isinstance(statement.target, ast.Name):
        return statement.target, statement.value
    return None


def _value(node: ast.expr, names: Mapping[str, float]) -> float:
    """A number, or arithmetic on numbers. Raises ValueError for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return _bounded(node.value)
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand, names)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _arithmetic(type(node.op), _value(node.left, names), _value(node.right, names))
    raise ValueError("more than numbers and arithmetic")


def _arithmetic(kind: type[ast.operator], left: float, right: float) -> float:
    if kind is ast.Pow and abs(right) > 64:
        raise ValueError("an exponent above 64")
    result = _BINARY[kind](left, right)
    if isinstance(result, complex):
        raise ValueError("no real number")
    return _bounded(result)


def _bounded(value: float) -> float:
    if not abs(value) <= LARGEST:
        raise ValueError(f"a number beyond {LARGEST:g}")
    return value


def _refused(path: Path, node: ast.Name, why: str) -> SpecError:
    hint = f"give the number in the YAML: settings: {{{SETTINGS.get(node.id, 'train.batch_tokens')}: …}}"
    mistake = Mistake(node.id, f"{why}; the file is read, never run", Position(node.lineno, node.col_offset + 1), hint)
    return SpecError([mistake], str(path))
