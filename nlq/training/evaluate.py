"""Loss on fixed validation windows, with the sums that later statistics need."""

import hashlib
import time
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from nlq.core.run import EvalRow, WindowLosses
from nlq.data.plan import EvalSet
from nlq.training.engine import Engine

TOKENS_A_PASS = 16384


def evaluate(engine: Engine, sets: Iterable[EvalSet], step: int, data_hash: str) -> list[EvalRow]:
    """One row for each split, before update `step`."""
    return [_evaluate_split(engine, one, step, data_hash) for one in sets]


def _evaluate_split(engine: Engine, one: EvalSet, step: int, data_hash: str) -> EvalRow:
    began = time.perf_counter()
    losses_WT = _window_token_losses(engine, one)
    windows = _sums(losses_WT, one.doc_ids_WT)
    mean = float(losses_WT.mean())
    eval_ms = 1000 * (time.perf_counter() - began)
    return EvalRow(step, one.split, mean, losses_WT.size, eval_ms, data_hash, windows_hash(one), windows)


def windows_hash(one: EvalSet) -> str:
    """Which tokens are read and predicted: losses on other windows are no comparison. Hex; order counts."""
    digest = hashlib.blake2b(digest_size=16)
    for tokens_WT in (one.x_WT, one.y_WT):
        digest.update(np.ascontiguousarray(tokens_WT, dtype="<i8").tobytes())
    return digest.hexdigest()


def _window_token_losses(engine: Engine, one: EvalSet) -> np.ndarray:
    """Loss of every predicted token, float64 [W, T]."""
    windows_a_pass = max(1, TOKENS_A_PASS // engine.spec.model.context)
    parts: list[Tensor] = []
    for first in range(0, len(one.x_WT), windows_a_pass):
        rows = slice(first, first + windows_a_pass)
        x_BT, y_BT = (torch.from_numpy(tokens_WT[rows]).to(engine.device) for tokens_WT in (one.x_WT, one.y_WT))
        parts.append(engine.token_losses(x_BT, y_BT))
    return torch.cat(parts).double().cpu().numpy()


def _sums(losses_WT: np.ndarray, doc_ids_WT: np.ndarray | None) -> WindowLosses:
    windows, context = losses_WT.shape
    window_tokens = np.full(windows, context, dtype=np.int64)
    none = np.zeros(0, dtype=np.int64)
    if doc_ids_WT is None:
        return WindowLosses(losses_WT.sum(1), window_tokens, none, none.astype(np.float64), none)
    ids, place = np.unique(doc_ids_WT, return_inverse=True)
    doc_sums = np.bincount(place.ravel(), weights=losses_WT.ravel())
    doc_tokens = np.bincount(place.ravel())
    return WindowLosses(losses_WT.sum(1), window_tokens, ids.astype(np.int64), doc_sums, doc_tokens.astype(np.int64))
