"""Token counts that add up, and the ceilings put on them (USE, LIM and TBUD rules).

`input` includes what was read from and written to a cache; `output` includes reasoning. An absent `complete` means
"as reported"; `False` means the counters are a lower bound. Nothing here turns an unknown count into zero silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from pydantic import StrictBool, ValidationError, model_validator

from outpost_lsp.domain.record import Declaration, Record, SafeInt, describe
from outpost_lsp.errors import OutpostError

Counter = Literal["input", "cached", "cache_created", "output"]
COUNTERS: Final[tuple[Counter, ...]] = ("input", "cached", "cache_created", "output")


class ModelUsage(Record):
    """The part of a usage that one model spent."""

    input: SafeInt
    cached: SafeInt = 0
    cache_created: SafeInt | None = None
    output: SafeInt
    complete: StrictBool | None = None
    input_includes_cache: StrictBool | None = None
    """`False`: the service counts cached tokens outside `input`. Absent: inside."""


class Usage(Record):
    """Tokens of one request, or of many added up."""

    input: SafeInt
    cached: SafeInt = 0
    cache_created: SafeInt | None = None
    output: SafeInt
    complete: StrictBool | None = None
    models: Mapping[str, ModelUsage] | None = None

    @model_validator(mode="after")
    def _cache_is_part_of_input(self) -> Usage:
        # With a table of models some services count the cache outside `input`; the table says which.
        if self.models is None and self.cached + (self.cache_created or 0) > self.input:
            raise ValueError("cached and cache_created together exceed input")
        return self

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            cached=self.cached + other.cached,
            cache_created=_add_optional(self.cache_created, other.cache_created),
            output=self.output + other.output,
            complete=_both_complete(self.complete, other.complete),
            models=_merge_models(self.models, other.models),
        )

    def since(self, earlier: Usage) -> Usage:
        """The difference to an earlier reading of a cumulative counter, clamped at 0 (USE-04)."""
        # Copied rather than built: clamping may leave a cache part above `input`, which is no fault of the report.
        models = None if self.models is None else _models_since(self.models, earlier.models or {})
        return self.model_copy(update={**_counters_since(self, earlier), "models": models})

    def attributed(self, model: str) -> Usage:
        """The same usage with a table of one model, unless it has a table already (USE-07)."""
        if self.models is not None:
            return self
        part = ModelUsage(
            input=self.input,
            cached=self.cached,
            cache_created=self.cache_created,
            output=self.output,
            complete=self.complete,
        )
        return self.model_copy(update={"models": {model: part}})

    @property
    def is_complete(self) -> bool:
        """Whether every request behind these counts reported its usage."""
        return self.complete is not False

    def count(self, counter: Counter) -> int:
        """One counter, 0 when absent."""
        return getattr(self, counter) or 0


ZERO: Final = Usage(input=0, output=0)
UNKNOWN: Final = Usage(input=0, output=0, complete=False)
"""The receipt of a request that reported nothing (USE-06)."""


def total(usages: Iterable[Usage]) -> Usage:
    """The sum; `ZERO` for none."""
    result = ZERO
    for usage in usages:
        result = result + usage
    return result


class UsageLimits(Declaration):
    """Ceilings in tokens for a loop and all its descendants; exceeded strictly above (LIM-04)."""

    input: SafeInt | None = None
    cached: SafeInt | None = None
    cache_created: SafeInt | None = None
    output: SafeInt | None = None

    def set_counters(self) -> tuple[tuple[Counter, int], ...]:
        """The counters that have a ceiling."""
        return tuple((name, limit) for name in COUNTERS if (limit := getattr(self, name)) is not None)

    def exceeded_by(self, usage: Usage) -> tuple[Counter, int, int] | None:
        """The first broken ceiling as (counter, limit, used), else `None`."""
        for name, limit in self.set_counters():
            used = usage.count(name)
            if used > limit:
                return name, limit, used
        return None


def usage_from_report(report: Any) -> Usage:
    """A usage that somebody outside reported: a plain mapping with safe counters (USE-05).

    Raises `configuration` for anything else.
    """
    if not isinstance(report, Mapping):
        raise OutpostError("configuration", "usage: a mapping of token counts is expected")
    try:
        usage = Usage.model_validate(dict(report))
    except ValidationError as error:
        raise OutpostError("configuration", describe("usage", error)) from error
    for name in COUNTERS:
        parts = sum(getattr(part, name) or 0 for part in (usage.models or {}).values())
        if parts > usage.count(name):
            raise OutpostError("configuration", f"usage: the models' {name} together exceed the total")
    return usage


def _counters_since(newer: Usage | ModelUsage, earlier: Usage | ModelUsage) -> dict[str, int | None]:
    created = newer.cache_created
    return {
        "input": max(0, newer.input - earlier.input),
        "cached": max(0, newer.cached - earlier.cached),
        "cache_created": None if created is None else max(0, created - (earlier.cache_created or 0)),
        "output": max(0, newer.output - earlier.output),
    }


def _models_since(newer: Mapping[str, ModelUsage], earlier: Mapping[str, ModelUsage]) -> dict[str, ModelUsage]:
    return {
        name: part.model_copy(update=_counters_since(part, earlier[name])) if name in earlier else part
        for name, part in newer.items()
    }


def _add_optional(left: int | None, right: int | None) -> int | None:
    return None if left is None and right is None else (left or 0) + (right or 0)


def _both_complete(left: bool | None, right: bool | None) -> bool | None:
    return False if left is False or right is False else None


def _merge_models(
    left: Mapping[str, ModelUsage] | None, right: Mapping[str, ModelUsage] | None
) -> Mapping[str, ModelUsage] | None:
    if left is None or right is None:
        return left if right is None else right
    merged = dict(left)
    for name, part in right.items():
        merged[name] = part if name not in merged else _add_parts(name, merged[name], part)
    return merged


def _add_parts(name: str, left: ModelUsage, right: ModelUsage) -> ModelUsage:
    if (left.input_includes_cache is False) != (right.input_includes_cache is False):
        raise OutpostError(
            "configuration", f"usage of {name}: two ways of counting its cache; give the two services distinct names"
        )
    return ModelUsage(
        input=left.input + right.input,
        cached=left.cached + right.cached,
        cache_created=_add_optional(left.cache_created, right.cache_created),
        output=left.output + right.output,
        complete=_both_complete(left.complete, right.complete),
        input_includes_cache=left.input_includes_cache,
    )
