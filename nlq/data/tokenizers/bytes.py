"""One id a byte of UTF-8, and 256 for the end of a document."""

import numpy as np
import numpy.typing as npt

from nlq.core.spec import DataSpec
from nlq.data.tokenizers._base import END_OF_TEXT_MARK, Ids

VOCAB = 257
END_OF_TEXT = 256


class ByteTokenizer:
    """Ids 0 to 255 are the bytes themselves."""

    name = "bytes"
    vocab = VOCAB
    end_of_text = END_OF_TEXT

    def encode(self, text: str) -> npt.NDArray[np.uint8]:
        """Ids (N,), N bytes of UTF-8; a lone surrogate becomes a question mark."""
        return np.frombuffer(text.encode("utf-8", errors="replace"), dtype=np.uint8)

    def decode(self, ids: Ids) -> str:
        """The text of ids (N,)."""
        mark = END_OF_TEXT_MARK.encode()
        content = b"".join(mark if i == END_OF_TEXT else bytes([i]) for i in np.asarray(ids).tolist())
        return content.decode("utf-8", errors="replace")


def load(spec: DataSpec) -> ByteTokenizer:  # noqa: ARG001
    """The tokenizer; it needs no files."""
    return ByteTokenizer()
