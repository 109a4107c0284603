"""A step as it is usually written, after nanoGPT: whole logits, one sequence read at a time, AdamW over many tensors.

`plain` is that step in eager float32. `tuned` is the same step with whatever usually helps: torch.compile, fused
AdamW, and autocast to bfloat16 where it is quicker. Both compute GPT-2 as nlq's baseline does (no bias, tied head,
learned positions, exact GELU, eps 1e-5), so that a ratio compares the same mathematics; a test holds that.
Shapes as in `models/layers.py`; N is B·T.
"""

import math
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from nlq.bench.sizes import Size
from nlq.core.optim import OptimSpec
from nlq.training.schedule import learning_rate

EPS = 1e-5
TRY_S, MOST_TRIES = 2.0, 8
"""How long, and how often, ways to compute the loss are tried against each other."""

AGREE = 2e-2
"""Relative difference of losses up to which a compiled step counts as the eager one: bfloat16 rounds to 0.4 %."""

Loss = Callable[[Tensor, Tensor], Tensor]


class Norm(nn.Module):
    """Layer normalisation with a gain alone."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Centre and scale the last axis."""
        return functional.layer_norm(x_BTD, self.weight.shape, self.weight, None, EPS)


class Block(nn.Module):
    """Attention with one matrix for query, key and value; then the feed-forward."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads, width = size.heads, size.width
        self.norm_attention, self.norm_mlp = Norm(width), Norm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """One layer of the residual stream."""
        x_BTD = x_BTD + self.output(self._mixed(self.norm_attention(x_BTD)))
        y_BTD: Tensor = x_BTD + self.down(functional.gelu(self.up(self.norm_mlp(x_BTD))))
        return y_BTD

    def _mixed(self, x_BTD: Tensor) -> Tensor:
        rows, context, width = x_BTD.shape
        parts = self.qkv(x_BTD).split(width, dim=2)
        q, k, v = (part.view(rows, context, self.heads, -1).transpose(1, 2) for part in parts)
        y_BHTK = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y_BTD: Tensor = y_BHTK.transpose(1, 2).contiguous().view(rows, context, width)
        return y_BTD


class Gpt(nn.Module):
    """GPT-2 without biases, the head tied to the embedding."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.vocab, size.width)
        self.positions = nn.Embedding(size.context, size.width)
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = Norm(size.width)
        for name, parameter in self.named_parameters():
            if parameter.dim() >= 2:
                residual = name.endswith(("output.weight", "down.weight"))
                nn.init.normal_(parameter, 0.0, 0.02 / math.sqrt(2 * size.layers) if residual else 0.02)

    def forward(self, x_BT: Tensor, y_BT: Tensor) -> Tensor:
        """The mean loss in nats; the logits are whole in memory."""
        x_BTD = self.embedding(x_BT) + self.positions(torch.arange(x_BT.shape[1], device=x_BT.device))
        for block in self.blocks:
            x_BTD = block(x_BTD)
        logits_BTV = functional.linear(self.norm(x_BTD), self.embedding.weight)
        return functional.cross_entropy(logits_BTV.flatten(0, 1), y_BT.flatten())


class Reference:
    """A model in training, step by step."""

    def __init__(self, size: Size, tokens: Path, optim: OptimSpec, device: torch.device, *, fused: bool) -> None:
        """`tokens` is a file of uint16."""
        torch.manual_seed(0)
        self.size, self.tokens, self.optim, self.device = size, tokens, optim, device
        self.model = Gpt(size).to(device)
        self.loss: Loss = self.model
        self.lowered = False
        decayed = [p for p in self.model.parameters() if p.dim() >= 2]
        gains = [p for p in self.model.parameters() if p.dim() < 2]
        groups = [{"params": decayed, "weight_decay": optim.weight_decay}, {"params": gains, "weight_decay": 0.0}]
        self.optimiser = torch.optim.AdamW(groups, lr=optim.lr_max, betas=(optim.beta1, optim.beta2), fused=fused)

    def step(self, number: int) -> Tensor:
        """Read a batch and take an update; the loss before it, still on the device."""
        return self.update(*self.batch(), number)

    def batch(self, draw: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Sequences from anywhere in the text, each read from a memmap by itself, and their targets [B, T]."""
        tokens, context = np.memmap(self.tokens, dtype=np.uint16, mode="r"), self.size.context
        starts = torch.randint(len(tokens) - context, (self.size.rows,), generator=draw).tolist()
        x = torch.stack([torch.from_numpy(tokens[i : i + context].astype(np.int64)) for i in starts])
        y = torch.stack([torch.from_numpy(tokens[i + 1 : i + 1 + context].astype(np.int64)) for i in starts])
        return x.to(self.device), y.to(self.device)

    def update(self, x_BT: Tensor, y_BT: Tensor, number: int) -> Tensor:
        """Forward, backward, clip, AdamW."""
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(number, self.optim)
        loss = self.backward(x_BT, y_BT)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.optim.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return loss

    def backward(self, x_BT: Tensor, y_BT: Tensor) -> Tensor:
        """The loss, and its gradients in the parameters."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.lowered):
            loss = self.loss(x_BT, y_BT)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


class _Passed(NamedTuple):
    """The loss of a first pass, and the seconds of the quickest."""

    loss: float
    seconds: float


class _Way(NamedTuple):
    """One way to compute the loss."""

    loss: Loss
    lowered: bool


def tune(reference: Reference, *, compiled: bool) -> str:
    """Give a reference the quickest of the usual settings on this device; says in words which, and what lacks."""
    high, low = (_Way(reference.model, lowered) for lowered in (False, True))
    eager = _tried(reference, [high, low])
    chosen = low if eager[1].seconds < eager[0].seconds else high
    how = _compile(reference, chosen) if compiled else "not compiled"
    reference.lowered = chosen.lowered
    return f"{'bf16 autocast' if chosen.lowered else 'float32'}, fused AdamW, {how}"


def _compile(reference: Reference, eager: _Way) -> str:
    """Compile the loss where this machine can, where the numbers agree, and where it is quicker."""
    if not _has_compiler():
        return "not compiled: no C++ compiler here (install g++)"
    way = eager._replace(loss=torch.compile(reference.model, dynamic=False))
    try:
        _pass(reference, way)
        reason = _against(*_tried(reference, [way, eager]))
    except Exception as error:  # noqa: BLE001 - whatever a compiler dies of, the eager step stands
        reason = f"not compiled: {type(error).__name__} in torch.compile"
    reference.loss = reference.model if reason else way.loss
    return reason or "compiled"


def _against(found: _Passed, eager: _Passed) -> str:
    """What speaks against compiled code, if anything does."""
    if not math.isclose(found.loss, eager.loss, rel_tol=AGREE):
        return f"not compiled: the compiled loss is {found.loss:.4f}, the eager one {eager.loss:.4f}"
    return "not compiled: eager is quicker" if found.seconds > eager.seconds else ""


def _has_compiler() -> bool:
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "g++", "clang++"))


def _tried(reference: Reference, ways: list[_Way]) -> list[_Passed]:
    """Each way in turn on one batch, as often as TRY_S allows, so that a busy machine slows all of them."""
    passes = [[_pass(reference, way) for way in ways]]
    while len(passes) < MOST_TRIES and sum(one.seconds for turn in passes for one in turn) < TRY_S:
        passes.append([_pass(reference, way) for way in ways])
    return [_Passed(turns[0].loss, min(one.seconds for one in turns)) for turns in zip(*passes, strict=True)]


def _pass(reference: Reference, way: _Way) -> _Passed:
    """Forward and backward over the batch that all tries share."""
    reference.loss, reference.lowered = way
    x_BT, y_BT = reference.batch(torch.Generator().manual_seed(0))
    began = time.perf_counter()
    loss = float(reference.backward(x_BT, y_BT))
    taken = _Passed(loss, time.perf_counter() - began)
    reference.optimiser.zero_grad(set_to_none=True)
    return taken
