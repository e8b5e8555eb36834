"""What models and decision services cost, by the names that their use is accounted under, and what does not fit there.

Pure. A model's use stands under the service's own name of it, a decision's under the name that the routing asks for, so a
decider's price is that of every decision model that a routing asks it for (PRICE-06, ROUTE-43).
"""

from __future__ import annotations

from collections.abc import Iterator

from outpost_lsp.config.schema import CeilingSettings, Settings
from outpost_lsp.config.services import PriceSettings
from outpost_lsp.config.toml_lines import Path as KeyPath
from outpost_lsp.domain.price import ModelPrice, ModelPriceTable


def price_table(settings: Settings) -> ModelPriceTable | None:
    """The prices of all models and decision models; `None` when there are none."""
    prices = {name: price for _, name, price in _named(settings)}
    if not prices:
        return None
    return ModelPriceTable(
        next(iter(prices.values())).currency,
        {
            name: ModelPrice(
                input=price.input, output=price.output, cached=price.cached, cache_created=price.cache_created
            )
            for name, price in prices.items()
        },
    )


def price_faults(settings: Settings) -> Iterator[tuple[KeyPath, str]]:
    """Two currencies, two prices under one name, and ceilings in money without any price."""
    currencies: dict[str, KeyPath] = {}
    for path, price in _given(settings):
        currencies.setdefault(price.currency, path)
    if len(currencies) > 1:
        (_, first), (_, second), *_ = currencies.items()
        yield (*second, "price", "currency"), f"one currency for all models is expected, as {first[1]} has it"
    prices: dict[str, tuple[KeyPath, PriceSettings]] = {}
    told: set[KeyPath] = set()
    for path, name, price in _named(settings):
        first, known = prices.setdefault(name, (path, price))
        if known != price and path not in told:
            told.add(path)
            yield (*path, "price"), f"{first[1]} is the same service model at another price"
    ceilings: tuple[tuple[str, CeilingSettings], ...] = (
        ("per_run", settings.budget.per_run),
        ("per_day", settings.budget.per_day),
    )
    for name, ceiling in ceilings:
        if ceiling.cost is not None and not currencies:
            yield ("budget", name, "cost"), "a ceiling in money needs models with a price"


def _given(settings: Settings) -> Iterator[tuple[KeyPath, PriceSettings]]:
    """Every price with the entry that it stands in."""
    for name, model in settings.models.items():
        if model.price is not None:
            yield ("models", name), model.price
    for name, decider in settings.deciders.items():
        if decider.price is not None:
            yield ("deciders", name), decider.price


def _named(settings: Settings) -> Iterator[tuple[KeyPath, str, PriceSettings]]:
    """Every price with its entry and the name that it is for."""
    for path, price in _given(settings):
        key, name = path[0], str(path[1])
        if key == "models":
            yield path, settings.models[name].name, price
            continue
        for asked in dict.fromkeys(one.model for one in settings.routing.values() if one.decider == name):
            yield path, asked, price
