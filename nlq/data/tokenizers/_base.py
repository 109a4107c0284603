"""What every tokenizer offers."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.integer[Any]]
"""Token ids of any integer type."""

END_OF_TEXT_MARK = "<|endoftext|>"
"""How the end-of-text id reads when it is decoded."""


class Tokenizer(Protocol):
    """Turns text into ids below `vocab` and back; `end_of_text` is put after each document, never within one."""

    name: str
    vocab: int
    end_of_text: int

    def encode(self, text: str) -> Ids:
        """Ids (N,) of a text; a text that spells the end-of-text mark gets ordinary ids."""

    def decode(self, ids: Ids) -> str:
        """The text of ids (N,); bytes that are not UTF-8 become U+FFFD."""
