"""`nlq report --html`: the page, and every table of it as LaTeX and CSV beside it."""

from pathlib import Path

from nlq.commands._console import print_json
from nlq.core.errors import NlqError
from nlq.report.page.reading import read
from nlq.report.page.writing import document, file_names
from nlq.report.render import render
from nlq.store.reader import Reader

PAGE = "index.html"


def page(db: Path, folder: Path, sweep: str | None, sigma_nats: float | None, *, as_json: bool) -> None:
    """Write the page into a folder and print where it is. Everything is read and made before anything is written."""
    if folder.suffix.lower() in (".html", ".htm"):
        raise NlqError(
            f"{folder}: --html takes a folder, for the tables stand beside the page",
            f"--html {folder.parent / folder.stem}/",
        )
    found = read(Reader(db), sweep, sigma_nats)
    texts = {PAGE: document(found)}
    for table in found.tables:
        texts |= {name: render(table.sheet, form) for form, name in file_names(table).items()}
    _write(folder, texts)
    if as_json:
        print_json({"page": str(folder / PAGE), "files": [str(folder / name) for name in texts if name != PAGE]})
    else:
        print(folder / PAGE)


def _write(folder: Path, texts: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_bytes(text.encode("utf-8", "replace"))
    except FileExistsError as error:
        raise NlqError(f"{folder}: is a file, not a folder", "--html FOLDER, of another name") from error
    except OSError as error:
        raise NlqError(
            f"{folder}: cannot be written ({error.strerror})", "--html FOLDER, in a place that you may write"
        ) from error
