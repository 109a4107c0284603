"""A YAML file of settings being read: every mistake is gathered with its place, so that all are told at once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nlq.core.document import Document
from nlq.core.errors import Mistake, Position, nearest
from nlq.core.spec import unknown_setting


@dataclass(frozen=True)
class Setting:
    """A value and the place in the spec file that gave it."""

    value: Any
    position: Position | None


Point = dict[str, Setting]


@dataclass
class Reading:
    """A spec file being read; mistakes are gathered, not raised, so that all are told at once."""

    document: Document
    mistakes: list[Mistake] = field(default_factory=list)

    def wrong(self, path: tuple[Any, ...], message: str, hint: str = "") -> None:
        """Gather a mistake about the value at `path`."""
        self.mistakes.append(Mistake(".".join(map(str, path)), message, self.document.at(*path), hint))

    def refuse_null(self, path: tuple[Any, ...]) -> None:
        """A key that is there with nothing behind it is no default, but something forgotten."""
        above = self.get(path[:-1], dict, "a mapping", {}) if path[:-1] else self.document.data
        if path[-1] in above and above[path[-1]] is None:
            self.wrong(path, "is empty")

    def get(self, path: tuple[Any, ...], kind: type, what: str, default: Any) -> Any:
        """The value at `path`, `default` where there is none or it is no `kind`, which is a mistake."""
        node = self.document.data
        for part in path:
            node = _below(node, part)
        if node is None:
            return default
        if not isinstance(node, kind):
            self.wrong(path, f"must be {what}, found {node!r}")
            return default
        return node


def _below(node: Any, part: Any) -> Any:
    if isinstance(node, list) and isinstance(part, int):
        return node[part]
    return node.get(part) if isinstance(node, dict) else None


def sweep_name(plan: Reading) -> str:
    """The sweep's name, or that of its file without the suffix."""
    name = plan.document.data.get("name", Path(plan.document.source).stem)
    if not isinstance(name, str | int | float) or not str(name).isprintable() or "/" in str(name) or not str(name):
        plan.wrong(("name",), f"must be text without a slash, found {name!r}")
    return str(name)


def refuse_unknown(plan: Reading, path: tuple[Any, ...], names: Mapping[Any, Any], known: tuple[str, ...]) -> None:
    """Gather a mistake for each of `names` that is not among `known`."""
    for name in names:
        if name not in known:
            plan.wrong((*path, name), "unknown key", f"{name}: {nearest(str(name), known)}")


def placed_settings(plan: Reading, path: tuple[Any, ...], node: Mapping[Any, Any]) -> Point:
    """The settings below a mapping, by dotted name, each with its place."""
    settings: Point = {}
    for name, place, value in flat(path, node):
        if name in settings:
            plan.mistakes.append(Mistake(name, "given twice", plan.document.at(*place)))
        settings[name] = Setting(value, plan.document.at(*place))
    return settings


def known_settings(plan: Reading, settings: Point) -> Point:
    """The settings whose names exist; the others become mistakes."""
    good: Point = {}
    for name, setting in settings.items():
        mistake = unknown_setting(name)
        if mistake:
            plan.mistakes.append(Mistake(name, mistake.message, setting.position, mistake.hint))
        else:
            good[name] = setting
    return good


def flat(
    path: tuple[Any, ...], node: Mapping[Any, Any], prefix: str = ""
) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    """(dotted name, path in the file, value) of everything below a mapping."""
    for key, value in node.items():
        if isinstance(value, dict):
            yield from flat((*path, key), value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", (*path, key), value


def placed(mistake: Mistake, settings: Point) -> Mistake:
    """The mistake with the place of the setting that it is about, or of the closest one above it."""
    parts = mistake.path.split(".")
    for end in range(len(parts), 0, -1):
        name = ".".join(parts[:end])
        places = [s.position for n, s in settings.items() if n == name or n.startswith(f"{name}.")]
        if places and end > 1:
            return Mistake(mistake.path, mistake.message, places[0], mistake.hint)
    return mistake
