"""Prices of models, and what a usage costs by them (PRICE rules).

The result is an estimate, not an invoice, and a lower bound unless `complete`: tokens without a known price are never
counted as free. Dispatches, workflow budgets and the faces work costs out here and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator

from outpost_lsp.domain.record import Declaration, Record
from outpost_lsp.domain.usage import COUNTERS, ModelUsage, Usage
from outpost_lsp.errors import OutpostError

Currency = Literal["EUR", "USD"]
Rate = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
"""An amount of money per million tokens."""

_MILLION: Final = 1_000_000


class ModelPrice(Declaration):
    """Rates of one model per million tokens. An absent cache rate is the `input` rate (PRICE-01)."""

    input: Rate
    output: Rate
    cached: Rate | None = None
    cache_created: Rate | None = None


class ModelPriceTable(Declaration):
    """What models cost, by the exact name they are accounted under (PRICE-05)."""

    currency: Currency
    models: Mapping[str, ModelPrice]

    def __init__(
        self, currency: Currency, models: Mapping[str, ModelPrice | Mapping[str, Any]], **unknown: Any
    ) -> None:
        super().__init__(currency=currency, models=models, **unknown)

    @field_validator("models", mode="before")
    @classmethod
    def _prices_of_mappings(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        try:
            return {
                name: price if isinstance(price, ModelPrice) else ModelPrice(**_text_keys(price))
                for name, price in value.items()
            }
        except OutpostError as error:
            raise ValueError(error.message) from error

    @field_validator("models")
    @classmethod
    def _names_are_text(cls, value: Mapping[str, ModelPrice]) -> Mapping[str, ModelPrice]:
        if any(not name.strip() for name in value):
            raise ValueError("a model name is blank")
        return MappingProxyType(dict(value))


class UsageCost(Record):
    """An estimated amount; a lower bound when not `complete`."""

    currency: Currency
    amount: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    complete: bool

    @property
    def is_known(self) -> bool:
        """Whether the amount says anything: an incomplete zero is an unknown cost, not a free one."""
        return self.complete or self.amount > 0

    def __add__(self, other: UsageCost) -> UsageCost:
        if self.currency != other.currency:
            raise OutpostError("configuration", f"costs in {self.currency} and {other.currency} do not add up")
        return UsageCost(
            currency=self.currency,
            amount=math.fsum((self.amount, other.amount)),
            complete=self.complete and other.complete,
        )


def usage_cost(usage: Usage, prices: ModelPriceTable) -> UsageCost:
    """What `usage` costs by `prices`, from its table of models.

    `configuration` when a model's cache parts are above the input they are part of (PRICE-03).
    """
    millionths: list[float] = []
    parts = usage.models or {}
    complete = usage.is_complete and not _more_than_parts(usage, parts)
    for name, part in parts.items():
        price = prices.models.get(name)
        if price is None:
            complete = complete and _tokens(part) == 0
            continue
        complete = complete and part.complete is not False
        millionths.extend(_amounts(name, part, price))
    return UsageCost(currency=prices.currency, amount=math.fsum(millionths) / _MILLION, complete=complete)


def unpriced(usage: Usage, prices: ModelPriceTable) -> str:
    """The end of a sentence that names the models whose tokens have no price; empty when all have one.

    The model of a decision service is among them, which nobody thinks of who gave prices to models that talk.
    """
    names = sorted(name for name, part in (usage.models or {}).items() if name not in prices.models and _tokens(part))
    return f"; there is no price for {', '.join(names)}" if names else ""


def _amounts(name: str, part: ModelUsage, price: ModelPrice) -> tuple[float, float, float, float]:
    created = part.cache_created or 0
    fresh = part.input
    if part.input_includes_cache is not False:
        fresh -= part.cached + created
        if fresh < 0:
            raise OutpostError("configuration", f"usage of {name}: its cached tokens exceed its input tokens")
    return (
        fresh * price.input,
        part.cached * (price.input if price.cached is None else price.cached),
        created * (price.input if price.cache_created is None else price.cache_created),
        part.output * price.output,
    )


def _more_than_parts(usage: Usage, parts: Mapping[str, ModelUsage]) -> bool:
    # Tokens that no model of the table accounts for have no price (PRICE-04).
    return _tokens(usage) > sum(_tokens(part) for part in parts.values())


def _tokens(usage: Usage | ModelUsage) -> int:
    return sum(getattr(usage, name) or 0 for name in COUNTERS)


def _text_keys(price: Any) -> dict[str, Any]:
    if not isinstance(price, Mapping) or not all(isinstance(key, str) for key in price):
        raise OutpostError("configuration", "a price with input and output is expected")
    return dict(price)
