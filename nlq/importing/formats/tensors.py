"""The output folder of the paper's code: tensors whose row i is step 1000 i, with columns count, mean and sd.

What else lies there, pickled settings included, is never opened.
"""

import zipfile
from pathlib import Path
from typing import Any

from nlq.core.errors import NlqError
from nlq.core.imported import BATCH, TRAIN, VAL, Losses
from nlq.importing.curve import Curve, Place, Wanted
from nlq.importing.files import MAX_BYTES

FILES = {VAL: "eval_val_tensor.pt", TRAIN: "eval_train_tensor.pt", BATCH: "tensor.pt"}
MOST_ROWS = 1_000_000
AGAIN = "save it again with torch.save of the tensor alone, or leave this run out"


def fits(path: Path) -> bool:
    """Whether a file or folder looks like this format."""
    return path.is_dir()


def read(path: Path, wanted: Wanted) -> Losses:
    """The losses of a folder. Raises NlqError or SpecError."""
    found = parts(path)
    if path / FILES[VAL] not in found:
        raise NlqError(f"{path}: no {FILES[VAL]} in this folder", "name a folder that the paper's code has written")
    curve = Curve(path, wanted)
    for split, name in FILES.items():
        if path / name in found:
            _take(curve, split, path / name)
    return curve.checked(f"{FILES[VAL]} has no row with a count")


def parts(path: Path) -> list[Path]:
    """The files of a folder that are read."""
    return [path / name for name in FILES.values() if (path / name).is_file()]


def _take(curve: Curve, split: str, path: Path) -> None:
    """A row whose count is 0 was never reached."""
    for index, row in enumerate(_rows(path)):
        if row[0] != 0:
            curve.add(split, index * curve.wanted.every, str(row[1]), Place(index + 1, 2, path.name))


def _rows(path: Path) -> list[list[float]]:
    import torch

    _refuse_bombs(path)
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise NlqError(f"{path}: holds more than a tensor, or is damaged; nothing in it was run", AGAIN) from error
    return _checked(path, loaded, torch.Tensor)


def _checked(path: Path, loaded: Any, kind: type) -> list[list[float]]:
    """A tensor of three columns; a shape may claim more than the file holds."""
    if not isinstance(loaded, kind):
        raise NlqError(f"{path}: holds a {type(loaded).__name__}, not a tensor", AGAIN)
    tensor: Any = loaded
    shape = list(tensor.shape)
    if len(shape) != 2 or shape[1] != 3 or shape[0] > MOST_ROWS or tensor.is_complex() or tensor.is_sparse:
        raise NlqError(f"{path}: must have rows of count, mean and sd, found the shape {shape}", AGAIN)
    rows: list[list[float]] = tensor.double().tolist()
    return rows


def _refuse_bombs(path: Path) -> None:
    """Only the form that torch.save writes: a zip file whose parts are stored as they are.

    Besides its own error, zipfile raises ValueError and NotImplementedError of headers that were tampered with.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            inside = archive.infolist()
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        raise NlqError(f"{path}: not a file of torch.save", AGAIN) from error
    packed = any(part.compress_type != zipfile.ZIP_STORED for part in inside)
    if packed or sum(part.file_size for part in inside) > MAX_BYTES:
        raise NlqError(f"{path}: unpacks to more than a tensor of losses", AGAIN)
