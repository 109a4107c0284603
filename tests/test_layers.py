"""Who may import whom, read from the syntax trees (imports inside functions too), and what each room never touches."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "nlq"

MAY_IMPORT = {
    "core": set(),
    "models": {"core"},
    "data": {"core"},
    "training": {"core", "models", "data"},
    "bench": {"core", "models", "data", "training"},
    "importing": {"core"},
    "store": {"core"},
    "stats": {"core"},
    "runners": {"core"},
    "scheduler": {"core", "store", "runners"},
    "provenance": {"core"},
    "report": {"core", "stats", "store.reader"},
    "plots": {"core", "stats", "store.reader"},
}
ANYTHING = {"cli", "commands", "worker", "forkserver", "__main__"}
"""Where the parts are put together."""

BY_ITSELF = {"__init__"}
"""Imports nothing of nlq."""

SQLITE = {"sqlite3", "sqlite_utils"}
NEVER = {
    "core": {"torch", *SQLITE},
    "models": {*SQLITE, "pathlib", "time", "datetime", "os", "io"},
    "data": SQLITE,
    "training": SQLITE,
    "bench": SQLITE,
    "importing": SQLITE,
    "store": {"torch"},
    "stats": {"torch", *SQLITE},
    "runners": {"torch", *SQLITE},
    "scheduler": {"torch"},
    "report": {"torch", *SQLITE},
    "plots": {"torch", *SQLITE},
}
ALLOWED = {("models/variants.py", "pathlib")}
"""The named systems stand in a file beside the code."""

FILES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    """The room of a file: its folder in nlq/, or its own name."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem


def imports(path: Path) -> Iterator[str]:
    """Full names of all modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def only_for_types(path: Path) -> set[str]:
    """Modules imported below `if TYPE_CHECKING:`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            found |= {a.name for n in node.body if isinstance(n, ast.Import) for a in n.names}
            found |= {n.module or "" for n in node.body if isinstance(n, ast.ImportFrom)}
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_room_imports_only_what_it_may(path: Path) -> None:
    own = room(path)
    if own in ANYTHING:
        return
    assert own in MAY_IMPORT or own in BY_ITSELF, f"{path} is in no known room"
    allowed = {own} | MAY_IMPORT.get(own, set())
    for name in imports(path):
        if name.startswith("nlq.") and name != "nlq.__version__":
            inside = name.removeprefix("nlq.")
            assert any(inside == a or inside.startswith(f"{a}.") for a in allowed), f"{path} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_room_never_touches(path: Path) -> None:
    never = NEVER.get(room(path), set())
    for name in set(imports(path)) - only_for_types(path):
        top = name.split(".")[0]
        assert top not in never or (str(path.relative_to(PACKAGE)), top) in ALLOWED, f"{path} imports {name}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "data").rglob("*.py")), ids=lambda p: p.name)
def test_data_imports_torch_inside_functions_only(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    assert not any("torch" in ast.unparse(node).split() for node in top)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_are_small_and_safe(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    names = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)} | set(imports(path))
    assert not names & {"pickle", "dill", "joblib", "marshal", "shelve", "eval", "exec"}


def test_open_folders_have_empty_init_files() -> None:
    for folder in (
        "models/projections",
        "models/attention",
        "models/feedforward",
        "models/positions",
        "runners",
        "plots",
    ):
        assert (PACKAGE / folder / "__init__.py").read_text() == ""


def test_functions_are_short() -> None:
    lengths = sorted(
        node.end_lineno - node.lineno + 1 - _docstring_lines(node)
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.end_lineno
    )
    assert lengths[len(lengths) // 2] <= 8
    assert lengths[9 * len(lengths) // 10] <= 35
    assert lengths[-1] <= 60


def _docstring_lines(node: ast.FunctionDef) -> int:
    first = node.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return (first.end_lineno or 0) - first.lineno + 1 if is_docstring else 0
