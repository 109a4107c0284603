"""What all groups of settings are made of: numbers that YAML may spell as it likes, and a strict base."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


def _a_number(value: Any) -> Any:
    if isinstance(value, str | bool):
        raise ValueError(f"must be a number, found {value!r}")
    return value


def _no_minus_zero(value: float) -> float:
    return value + 0.0


Whole = Annotated[int, BeforeValidator(_a_number)]
Real = Annotated[float, BeforeValidator(_a_number), AfterValidator(_no_minus_zero), Field(allow_inf_nan=False)]


class Settings(BaseModel):
    """Base of all groups of settings: unknown names are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)
