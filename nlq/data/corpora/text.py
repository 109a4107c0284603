"""Text of the user's own: one file, all text files below a folder, or a glob. Each file is one document."""

import glob
from collections.abc import Iterator
from pathlib import Path

from nlq.core.errors import NlqError, nearest
from nlq.core.spec import DataSpec

HINT = "data.path names a file, a folder or a glob such as books/**/*.txt, relative to the spec file"


def sources(spec: DataSpec) -> list[Path]:
    """The files, hidden ones left out, ordered by name. Raises NlqError when there are none."""
    root, found = _found(spec)
    named = Path(spec.path or "")  # a file that the user named is read even when it is hidden
    visible = [file for file in found if file == named or not _hidden(file, root)]
    if not visible:
        raise NlqError(f"data.path: no text files in {spec.path}", HINT)
    return sorted(visible, key=lambda file: _name(file, root))


def documents(spec: DataSpec) -> Iterator[tuple[str, str]]:
    """Name (path below the folder, with slashes) and text of each file that is text; bad bytes become U+FFFD."""
    root, _ = _found(spec)
    for file in sources(spec):
        text = decoded(file.read_bytes())
        if text is not None:
            yield _name(file, root), text


def note(spec: DataSpec) -> str:
    """How many hidden files were left out, or an empty string."""
    _, found = _found(spec)
    hidden = len(found) - len(sources(spec))
    return f"hidden files left out: {hidden}" if hidden else ""


def decoded(content: bytes) -> str | None:
    """The text, or None when it is binary: NUL bytes, or more than a tenth of it not UTF-8."""
    if b"\0" in content:
        return None
    text = content.decode("utf-8", errors="replace")
    replaced = text.count("\ufffd") - content.count(b"\xef\xbf\xbd")
    return None if replaced * 10 > len(text) else text


def _found(spec: DataSpec) -> tuple[Path, list[Path]]:
    """The folder that names are relative to, and all files, hidden ones too."""
    if not spec.path:
        raise NlqError("data.path: the corpus text needs a path", HINT)
    path = Path(spec.path)
    if path.is_file():
        return path.parent, [path]
    if path.is_dir():
        return path, [file for file in path.rglob("*") if file.is_file()]
    if glob.has_magic(spec.path):
        files = [Path(name) for name in glob.glob(spec.path, recursive=True, include_hidden=True)]  # noqa: PTH207
        return _fixed_part(path), [file for file in files if file.is_file()]
    raise NlqError(f"data.path: no such file or folder: {path}{_nearby(path)}", HINT)


def _fixed_part(pattern: Path) -> Path:
    """The folders of a glob before its first wildcard."""
    while glob.has_magic(str(pattern)):
        pattern = pattern.parent
    return pattern


def _nearby(path: Path) -> str:
    existing = next(folder for folder in path.absolute().parents if folder.is_dir())
    try:
        names = [entry.name for entry in existing.iterdir() if not entry.name.startswith(".")]
    except OSError:
        names = []
    missing = path.absolute().relative_to(existing).parts[0]
    return f"; in {existing}: {nearest(missing, names)}" if names else f"; {existing} is empty"


def _hidden(file: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(root).parts)


def _name(file: Path, root: Path) -> str:
    return file.relative_to(root).as_posix()
