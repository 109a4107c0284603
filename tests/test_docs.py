"""The README shows every command and option that there is, and no other; help comes quickly, without PyTorch."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from nlq.cli import app
from nlq.core.spec import setting_names
from nlq.models.variants import variants

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands(group: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command with its full name."""
    if hasattr(group, "commands"):
        for name, command in group.commands.items():
            yield from commands(command, (*path, name))
    else:
        yield " ".join(path), group


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_stands_in_the_readme_and_has_help(name: str) -> None:
    assert f"nlq {name}" in README
    assert COMMANDS[name].help
    assert all(getattr(p, "help", None) for p in COMMANDS[name].params if p.name != "help")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_stands_in_the_readme(name: str) -> None:
    options = [o for p in COMMANDS[name].params for o in p.opts if o.startswith("--") and o != "--help"]
    missing = [o for o in options if f"{o}`" not in README and f"{o} " not in README and f"{o}\n" not in README]
    assert not missing


def test_every_command_line_of_the_readme_exists() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^nlq ([a-z].*)$", "\n".join(blocks), flags=re.MULTILINE)
    assert len(lines) > 10
    for line in lines:
        words = line.split("#")[0].split()
        name = next((n for n in (" ".join(words[:2]), words[0]) if n in COMMANDS), None)
        assert name, f"nlq {line}"
        known = {o for p in COMMANDS[name].params for o in (*p.opts, *p.secondary_opts)} | {"--help"}
        assert {w for w in words if w.startswith("--")} <= known, f"nlq {line}"


def test_specs_that_the_readme_names_exist() -> None:
    for path in set(re.findall(r"specs/\w+\.yaml", README)):
        assert (ROOT / path).is_file(), path
    for path in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (ROOT / path).exists(), path


def test_the_readme_lists_settings_and_variants() -> None:
    assert all(f"`{name}`" in README for name in setting_names())
    assert all(f"`{name}`" in README for name in variants())


def test_help_imports_nothing_slow() -> None:
    code = "import sys; sys.argv = ['nlq', '--help']\nimport nlq.cli\ntry: nlq.cli.main()\nexcept SystemExit: pass\n"
    code += "print(sorted({'torch', 'pandas', 'numpy', 'pydantic', 'matplotlib', 'sqlite_utils'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["report", "--table1"],
        ["report", "--evidence"],
        ["report", "--published"],
        ["report", "--html", "out"],
        ["plot", "--list"],
    ],
)
def test_reading_never_imports_torch(command: list[str], tmp_path: Path) -> None:
    code = f"import sys; sys.argv = ['nlq', *{command}]\nimport nlq.cli\ntry: nlq.cli.main()\nexcept SystemExit: pass\n"
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip().endswith("False")


def test_help_takes_little_more_than_python_itself() -> None:
    """As a ratio: three starts of Python with the command-line library cost more than one help page."""

    def seconds(*arguments: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
        return time.perf_counter() - began

    pairs = [(seconds("-m", "nlq", "--help"), seconds("-c", "import typer")) for _ in range(5)]
    assert min(page / bare for page, bare in pairs) < 3
