"""In which order a run reads its tokens, and on which windows it is evaluated.

Shapes: B sequences of a batch, T tokens of a sequence, W evaluation windows.
"""

import hashlib
import mmap
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from nlq.core.errors import NlqError
from nlq.core.spec import RunSpec
from nlq.data.prepared import Prepared

Int64 = npt.NDArray[np.int64]
Tokens = npt.NDArray[np.integer[Any]]
DocIds = Callable[[str, Int64], Int64]
"""The documents of token offsets in a split, in the shape of the offsets."""

PAPER_SEED = 42
"""Seed of the paper's own windows: a run of seed 0 draws what the paper's code drew."""


class Batch(NamedTuple):
    """Inputs and, one token later, targets; both int64."""

    x_BT: Int64  # noqa: N815
    y_BT: Int64  # noqa: N815


class EvalSet(NamedTuple):
    """Windows of one split; `doc_ids_WT` is the document of each predicted token, None where it is not known.

    Ids of select and of confirm never meet.
    """

    split: str
    x_WT: Int64  # noqa: N815
    y_WT: Int64  # noqa: N815
    doc_ids_WT: Int64 | None  # noqa: N815


class RunData(Protocol):
    """What a run trains and is evaluated on. Both are functions of the step alone, so that a run can resume."""

    @property
    def train_tokens(self) -> int:
        """Tokens of the text that is trained on."""

    def batch(self, step: int) -> Batch:
        """The batch of update `step`, counted from 0."""

    def evaluation(self, step: int) -> list[EvalSet]:
        """The windows to evaluate before update `step`."""


class WindowsData:
    """Disjoint windows of T inputs, each read once an epoch in an order that the seed and the epoch decide.

    An epoch's last windows and the next one's first may share a batch. Evaluation windows are the same at every
    step: half from `select` and half from `confirm`, evenly spread; all of a half that has fewer.
    """

    def __init__(
        self,
        train: Tokens,
        select: Tokens,
        confirm: Tokens,
        *,
        context: int,
        rows: int,
        seed: int,
        eval_windows: int,
        doc_ids: DocIds | None = None,
    ) -> None:
        """`rows` is B, `context` is T. Raises NlqError when `train` lacks a batch or a half lacks a window."""
        _require("train", train, context, rows)
        self._train, self._context, self._rows, self._seed = train, context, rows, seed
        self._held_out = {"select": select, "confirm": confirm}
        self._wanted = {"select": eval_windows - eval_windows // 2, "confirm": eval_windows // 2}
        self._doc_ids = doc_ids
        self._windows = _window_count(train, context)
        self._orders: dict[int, Int64] = {}
        for split, tokens in self._held_out.items():
            _require(split, tokens, context, min(1, self._wanted[split]))

    @property
    def train_tokens(self) -> int:
        """Tokens of the training split."""
        return len(self._train)

    def batch(self, step: int) -> Batch:
        """Rows step·B to (step + 1)·B of all epochs put end to end."""
        places = np.arange(step * self._rows, (step + 1) * self._rows)
        epochs, within = np.divmod(places, self._windows)
        windows = [self._order(int(epoch))[place] for epoch, place in zip(epochs, within, strict=True)]
        return _batch(self._train, np.array(windows) * self._context, self._context)

    def evaluation(self, step: int) -> list[EvalSet]:  # noqa: ARG002
        """Select, then confirm; the same whatever the step."""
        return [self._evaluation_of(split) for split, wanted in self._wanted.items() if wanted]

    def _evaluation_of(self, split: str) -> EvalSet:
        tokens = self._held_out[split]
        there = _window_count(tokens, self._context)
        chosen = min(self._wanted[split], there)
        starts = np.arange(chosen) * there // chosen * self._context
        return _eval_set(split, tokens, starts, self._context, self._doc_ids)

    def _order(self, epoch: int) -> Int64:
        if epoch not in self._orders:
            if len(self._orders) > 1:  # a batch meets two epochs at most
                self._orders.clear()
            self._orders[epoch] = window_order(self._windows, self._seed, epoch)
        return self._orders[epoch]


def window_order(windows: int, seed: int, epoch: int) -> Int64:
    """A permutation of `windows`. It sorts PCG64's raw output, which numpy never changes; its shuffles may."""
    return np.argsort(np.random.PCG64([seed, epoch]).random_raw(windows), kind="stable")


class PaperData:
    """Windows as the paper's code draws them: anywhere in the text, overlapping, by torch.randint.

    Batches are the rows of one draw of shape (steps, B) by a generator of seed 42 + `seed`. Evaluation windows are
    drawn from `val` by seed 42 whatever the run's seed: new ones at each multiple of `eval_every`, the same ones for
    every run; an evaluation between two multiples reads the windows of the one before.
    """

    def __init__(
        self,
        train: Tokens,
        val: Tokens,
        *,
        context: int,
        rows: int,
        seed: int,
        eval_windows: int,
        eval_every: int,
        steps: int,
        doc_ids: DocIds | None = None,
    ) -> None:
        """`rows` is B, `context` is T. Raises NlqError when a text is too short for one window."""
        _require("train", train, context, 1)
        _require("val", val, context, 1)
        self._train, self._val, self._doc_ids = train, val, doc_ids
        self._context, self._rows, self._seed = context, rows, PAPER_SEED + seed
        self._eval_every = eval_every
        self._eval_shape = (steps // eval_every + 1, eval_windows)
        self._eval_starts: Int64 | None = None
        self._from, self._drawn, self._last = _generator(self._seed), -1, np.empty(0, np.int64)

    @property
    def train_tokens(self) -> int:
        """Tokens of the training split."""
        return len(self._train)

    def batch(self, step: int) -> Batch:
        """Row `step` of the draw. Going on is quick, a jump draws what it skips, a jump back begins anew."""
        return _batch(self._train, self._starts(step), self._context)

    def evaluation(self, step: int) -> list[EvalSet]:
        """Row step // eval_every of the evaluation draw, as the one split "val"."""
        if self._eval_starts is None:
            draw = _randint(len(self._val) - self._context, self._eval_shape, _generator(PAPER_SEED))
            self._eval_starts = draw
        starts = self._eval_starts[step // self._eval_every]
        return [_eval_set("val", self._val, starts, self._context, self._doc_ids)]

    def _starts(self, step: int) -> Int64:
        if step < self._drawn:
            self._from, self._drawn = _generator(self._seed), -1
        while self._drawn < step:
            self._last = _randint(len(self._train) - self._context, (self._rows,), self._from)
            self._drawn += 1
        return self._last


def _generator(seed: int) -> Any:
    """A torch.Generator; torch is imported by this plan alone, and only when it is used."""
    import torch

    return torch.Generator().manual_seed(seed)


def _randint(high: int, shape: tuple[int, ...], generator: Any) -> Int64:
    import torch

    draw: Int64 = torch.randint(high, shape, generator=generator).numpy()
    return draw


def run_data(spec: RunSpec, prepared: Prepared) -> WindowsData | PaperData:
    """The data of one run. Raises NlqError when the text is too short, with the numbers and what to change."""
    train, context, rows = prepared.tokens("train"), spec.model.context, spec.sequences_per_step
    _require("train", train, context, rows)
    if spec.data.plan == "paper":
        return PaperData(
            train,
            prepared.tokens("val"),
            context=context,
            rows=rows,
            seed=spec.seed,
            eval_windows=spec.train.eval_windows,
            eval_every=spec.train.eval_every,
            steps=spec.train.steps,
            doc_ids=prepared.doc_ids_of,
        )
    return WindowsData(
        train,
        prepared.tokens("select"),
        prepared.tokens("confirm"),
        context=context,
        rows=rows,
        seed=spec.seed,
        eval_windows=spec.train.eval_windows,
        doc_ids=prepared.doc_ids_of,
    )


def rolling_hash(previous: str, batch: Batch) -> str:
    """SHA-256, in hex, of all batches up to this one; `previous` is the hash before it, "" at the start.

    It depends on token values alone: the same in whichever integer type or memory layout they come.
    """
    total = hashlib.sha256(previous.encode())
    for tokens in batch:
        total.update(np.ascontiguousarray(tokens, dtype="<i8").tobytes())
    return total.hexdigest()


def _window_count(tokens: Tokens, context: int) -> int:
    """Disjoint windows: the last target of one is the first input of the next."""
    return max(0, (len(tokens) - 1) // context)


def _require(split: str, tokens: Tokens, context: int, windows: int) -> None:
    there = _window_count(tokens, context)
    if there >= windows:
        return
    found = f"data: the {split} split holds {len(tokens):,} tokens, {there} windows of {context}"
    if split == "train":
        raise NlqError(
            f"{found}; one batch needs {windows}",
            f"bring more text, or lower train.batch_tokens to at most {there * context} or model.context"
            if there
            else "bring more text, or lower model.context",
        )
    raise NlqError(
        f"{found}; evaluation needs {windows}", "bring more text, raise data.val_fraction or lower model.context"
    )


def _batch(tokens: Tokens, starts_B: Int64, context: int) -> Batch:
    rows = _rows(tokens, starts_B, context)
    return Batch(np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, 1:]))


def _eval_set(split: str, tokens: Tokens, starts_W: Int64, context: int, doc_ids: DocIds | None) -> EvalSet:
    x_WT, y_WT = _batch(tokens, starts_W, context)
    predicted_WT = starts_W[:, None] + np.arange(1, context + 1)
    return EvalSet(split, x_WT, y_WT, doc_ids(split, predicted_WT) if doc_ids else None)


def _rows(tokens: Tokens, starts_B: Int64, context: int) -> Int64:
    """Windows (B, T + 1) as int64: T inputs and one target more."""
    rows: Int64 = _fresh(tokens)[starts_B[:, None] + np.arange(context + 1)].astype(np.int64)
    return rows


def _fresh(tokens: Tokens) -> Tokens:
    """A whole memmap opened anew: an old one keeps every page that was ever read, up to the size of the file."""
    if isinstance(tokens, np.memmap) and isinstance(tokens.base, mmap.mmap) and tokens.filename:
        return np.memmap(tokens.filename, dtype=tokens.dtype, mode="r", offset=tokens.offset, shape=tokens.shape)
    return tokens
