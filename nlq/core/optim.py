"""How weights move: the optimiser, its learning rates, and which settings each kind of either reads."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from nlq.core.errors import Mistake
from nlq.core.settings import Real, Settings, Whole


class OptimSpec(Settings):
    """The optimiser and its learning-rate schedule."""

    kind: Literal["adamw", "muon", "sgd"] = Field(
        "adamw", description="optimiser; muon moves the blocks' matrices, and adamw the rest beside it"
    )
    lr_max: Real = Field(1e-3, gt=0, description="peak learning rate")
    lr_min: Real | None = Field(
        None, ge=0, description="learning rate after the decay; lr_min_ratio × lr_max unless given"
    )
    lr_min_ratio: Real | None = Field(
        None,
        ge=0,
        le=1,
        description="lr_min as a share of lr_max; unless given, 0.1 with cosine, 0 with linear and wsd",
    )
    weight_decay: Real = Field(0.1, ge=0, description="decay of every tensor of two or more dimensions")
    beta1: Real = Field(0.9, ge=0, lt=1, description="decay of adamw's first moment")
    beta2: Real = Field(0.95, ge=0, lt=1, description="decay of adamw's second moment")
    eps: Real = Field(1e-8, gt=0, description="added to the root of adamw's second moment")
    momentum: Real | None = Field(
        None, ge=0, lt=1, description="decay of the momentum; 0.95 with muon, 0.9 with sgd unless given"
    )
    nesterov: bool | None = Field(
        None, description="Nesterov's momentum; as in PyTorch, true with muon, false with sgd unless given"
    )
    muon_scale: Literal["match_rms_adamw", "original"] | None = Field(
        None, description="muon's factor for a matrix's shape; match_rms_adamw, adamw's size of update, unless given"
    )
    adamw_lr_ratio: Real | None = Field(
        None, gt=0, description="with muon, adamw's learning rate as a share of muon's at every step; 1 unless given"
    )
    clip: Real = Field(1.0, gt=0, description="largest global gradient norm")
    warmup_steps: Whole = Field(30, ge=0, description="steps of linear warm-up")
    schedule: Literal["cosine", "linear", "wsd"] = Field(
        "cosine", description="shape of the decay; wsd stays at lr_max and falls linearly at the end"
    )
    decay_share: Real | None = Field(
        None,
        gt=0,
        le=1,
        description="with wsd, the final share of decay_steps in which the rate falls; 0.2 unless given",
    )
    decay_steps: Whole | None = Field(
        None, ge=1, description="step at which lr_min is reached; train.steps unless given"
    )

    @property
    def decay_start(self) -> int:
        """The first step of the decay, whose rate is still lr_max; of a resolved spec."""
        if self.schedule != "wsd":
            return self.warmup_steps
        decay_steps = self.decay_steps or 1
        return decay_steps - max(1, round((self.decay_share or 0.0) * decay_steps))


COMPUTED: Mapping[str, Mapping[str, Any]] = {
    "adamw": {},
    "muon": {"momentum": 0.95, "nesterov": True, "muon_scale": "match_rms_adamw", "adamw_lr_ratio": 1.0},
    "sgd": {"momentum": 0.9, "nesterov": False},
    "cosine": {"lr_min_ratio": 0.1},
    "linear": {"lr_min_ratio": 0.0},
    "wsd": {"lr_min_ratio": 0.0, "decay_share": 0.2},
}
"""Defaults that hang on the optimiser or on the schedule."""

READ_BY: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "beta1": ("kind", ("adamw", "muon")),
    "beta2": ("kind", ("adamw", "muon")),
    "eps": ("kind", ("adamw", "muon")),
    "momentum": ("kind", ("muon", "sgd")),
    "nesterov": ("kind", ("muon", "sgd")),
    "muon_scale": ("kind", ("muon",)),
    "adamw_lr_ratio": ("kind", ("muon",)),
    "decay_share": ("schedule", ("wsd",)),
}
"""Settings that only some read: which setting decides, and its values that do."""


def optim_defaults(optim: OptimSpec, steps: int) -> dict[str, Any]:
    """The settings whose default is computed from others, for a run of `steps` updates."""
    computed = {**COMPUTED[optim.kind], **COMPUTED[optim.schedule]}
    filled = {name: value if getattr(optim, name) is None else getattr(optim, name) for name, value in computed.items()}
    lr_min = filled["lr_min_ratio"] * optim.lr_max if optim.lr_min is None else optim.lr_min
    return {**filled, "lr_min": lr_min, "lr_min_ratio": None, "decay_steps": optim.decay_steps or steps}


def optim_mistakes(optim: OptimSpec, steps: int) -> Iterator[Mistake]:
    """Settings that are each valid but do not fit together, or that nothing would read."""
    yield from _unread(optim)
    if optim.lr_min is not None and optim.lr_min_ratio is not None:
        yield Mistake("optim.lr_min_ratio", "lr_min and lr_min_ratio are both given; keep one")
    if optim.lr_min is not None and optim.lr_min > optim.lr_max:
        yield Mistake("optim.lr_min", f"{optim.lr_min} is above lr_max {optim.lr_max}")
    full = optim.model_copy(update=optim_defaults(optim, steps))
    if full.kind == "sgd" and full.nesterov and not full.momentum:
        yield Mistake("optim.nesterov", "needs a momentum above 0", hint="optim.momentum: 0.9")
    decay_steps = full.decay_steps or steps
    if full.warmup_steps >= decay_steps:
        hint = f"optim.warmup_steps: {max(0, decay_steps // 10)}"
        yield Mistake("optim.warmup_steps", f"{optim.warmup_steps} is not before decay_steps {decay_steps}", hint=hint)
    elif full.warmup_steps > full.decay_start:
        message = f"the decay begins at step {full.decay_start}, before the end of warmup_steps {full.warmup_steps}"
        yield Mistake("optim.decay_share", message, hint=f"optim.warmup_steps: {full.decay_start} or fewer")


def _unread(optim: OptimSpec) -> Iterator[Mistake]:
    """A value other than the default where nothing reads it: two runs that are the same would have two keys."""
    for name, (decider, readers) in READ_BY.items():
        chosen, default = getattr(optim, decider), OptimSpec.model_fields[name].default
        if chosen not in readers and getattr(optim, name) != default:
            what = "optimiser" if decider == "kind" else decider
            hint = f"optim.{decider}: {' or '.join(readers)}"
            yield Mistake(f"optim.{name}", f"{what} {chosen} does not read {name}", hint=hint)
