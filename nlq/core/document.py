"""A spec file as plain data, with the line and column of everything in it. Reading can never run code."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from nlq.core.errors import Mistake, NlqError, Position, SpecError

MAX_BYTES = 1 << 20
MAX_VALUES = 200_000
"""Aliases can make a small file large; nobody writes such a spec."""


@dataclass(frozen=True)
class Document:
    """`data` is plain dicts, lists, strings and numbers; `positions` maps a path of keys to its place."""

    data: Any
    source: str
    text: str
    folder: Path
    positions: dict[tuple[Any, ...], Position] = field(default_factory=dict)

    def at(self, *path: Any) -> Position | None:
        """The place of the innermost known part of `path`."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.positions:
                return self.positions[path[:end]]
        return None


class _TagError(Exception):
    """A YAML tag that asks for more than plain data."""

    def __init__(self, tag: str, line: int, column: int) -> None:
        super().__init__(f"the tag {tag} is refused: a spec holds plain values only")
        self.position = Position(line + 1, column + 1)


def read(path: Path) -> Document:
    """Read a YAML 1.2 file (1e-3 is a number, yes is a word). Raises NlqError or SpecError."""
    if not path.is_file():
        there = sorted(str(p) for p in path.parent.glob("*.y*ml")) if path.parent.is_dir() else []
        raise NlqError(f"{path}: no such spec file", f"specs here: {', '.join(there[:6])}" if there else "")
    if path.stat().st_size > MAX_BYTES:
        raise NlqError(f"{path}: larger than 1 MiB, this is not a spec")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise NlqError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from error
    return parse(text, os.fsencode(path).decode("utf-8", "replace"), path.resolve().parent)


def parse(text: str, source: str, folder: Path) -> Document:
    """As `read`, of text already in hand."""
    try:
        node = YAML(typ="rt", pure=True).load(text)
        positions: dict[tuple[Any, ...], Position] = {}
        return Document(_plain(node, (), positions), source, text, folder, positions)
    except RecursionError as error:
        raise SpecError([Mistake("", "nested too deeply, this is not a spec")], source) from error
    except _TagError as error:
        raise SpecError([Mistake("", error.args[0], error.position)], source) from error
    except MarkedYAMLError as error:
        raise SpecError([_syntax_mistake(error)], source) from error
    except (YAMLError, ValueError) as error:
        raise SpecError([Mistake("", f"not YAML: {error}")], source) from error


def _syntax_mistake(error: MarkedYAMLError) -> Mistake:
    mark = error.problem_mark or error.context_mark
    place = Position(mark.line + 1, mark.column + 1) if mark else None
    return Mistake("", f"not YAML: {(error.problem or 'cannot be read').splitlines()[0]}", place)


def _plain(node: Any, path: tuple[Any, ...], positions: dict[tuple[Any, ...], Position]) -> Any:
    if len(positions) > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES:,} values, this is not a spec")
    tag = getattr(getattr(node, "tag", None), "value", None)
    if tag:
        raise _TagError(tag, *_place_of(path, positions))
    if isinstance(node, CommentedMap):
        return {key: _child(node, key, path, positions) for key in node}
    if isinstance(node, CommentedSeq):
        return [_child(node, index, path, positions) for index in range(len(node))]
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def _place_of(path: tuple[Any, ...], positions: dict[tuple[Any, ...], Position]) -> tuple[int, int]:
    place = positions.get(path, Position(1, 1))
    return place.line - 1, place.column - 1


def _child(
    node: CommentedMap | CommentedSeq,
    key: Any,
    path: tuple[Any, ...],
    positions: dict[tuple[Any, ...], Position],
) -> Any:
    place = node.lc.data.get(key) if node.lc.data else None
    if place:
        positions[(*path, key)] = Position(place[0] + 1, place[1] + 1)
    return _plain(node[key], (*path, key), positions)
