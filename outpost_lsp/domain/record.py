"""The two kinds of value everything else is made of.

A `Record` is stored or sent: frozen, camelCase on the wire, absent optional fields left out (PY-01).
A `Declaration` is what an application writes to describe an agent: frozen, and refused with a `configuration`
fault that names the field when it is wrong (PY-08, LIM-06).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic._internal._model_construction import ModelMetaclass
from pydantic.alias_generators import to_camel

from outpost_lsp.errors import OutpostError

MAX_SAFE_INTEGER: Final = 2**53 - 1

_WRONG_ARGUMENTS: Final = re.compile(r"\w+\.__init__\(\) ")

SafeInt = Annotated[int, Field(strict=True, ge=0, le=MAX_SAFE_INTEGER)]
"""A count: an `int` that is no `bool`, from 0 to 2^53 - 1 (PY-07)."""

PositiveInt = Annotated[int, Field(strict=True, gt=0, le=MAX_SAFE_INTEGER)]
"""A safe integer greater than 0 (PY-07)."""

NonBlank = Annotated[str, Field(strict=True, pattern=r"\S")]
"""Text with at least one visible character."""


class Record(BaseModel):
    """A frozen value that is stored or sent as JSON."""

    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True, extra="forbid", ser_json_inf_nan="constants"
    )

    def with_values(self, **fields: Any) -> Self:
        """The same record with other values, which are right already: nothing is checked, as thousands of events need it."""
        twin = object.__new__(type(self))
        put = object.__setattr__
        put(twin, "__dict__", {**self.__dict__, **fields})
        put(twin, "__pydantic_fields_set__", self.__pydantic_fields_set__ | fields.keys())
        put(twin, "__pydantic_extra__", self.__pydantic_extra__)
        put(twin, "__pydantic_private__", self.__pydantic_private__)
        return twin

    def to_json(self) -> dict[str, Any]:
        """The JSON object: camelCase names, absent fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def to_line(self) -> bytes:
        """The JSON object as one line of UTF-8, without the line end."""
        return self.model_dump_json(by_alias=True, exclude_none=True).encode()


class _DeclarationType(ModelMetaclass):
    """Makes an unknown or missing argument the same fault as a wrong one (PY-08)."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().__call__(*arguments, **options)
        except TypeError as error:
            if not _WRONG_ARGUMENTS.match(str(error)):
                raise
            message = str(error).replace(".__init__()", ":", 1)
            raise OutpostError("configuration", message) from error


class Declaration(BaseModel, metaclass=_DeclarationType):
    """A frozen value that an application writes; what is wrong with it is said at once, by field."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise OutpostError("configuration", describe(type(self).__name__, error)) from error
        # What the caller does afterwards with what was given is no part of the declaration (PY-02).
        for name in type(self).model_fields:
            self.__dict__[name] = read_only(self.__dict__[name])


def read_only(value: Any) -> Any:
    """A copy of a JSON-like value that nobody can change: mappings are read-only, lists are tuples."""
    if type(value) is dict:
        return MappingProxyType({key: read_only(part) for key, part in value.items()})
    if type(value) is list:
        return tuple(read_only(part) for part in value)
    return value


def changeable(value: Any) -> Any:
    """The opposite: a copy of plain dictionaries and lists, as JSON has them."""
    if isinstance(value, Mapping):
        return {key: changeable(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [changeable(part) for part in value]
    return value


def describe(subject: str, error: ValidationError) -> str:
    """One sentence for a person: which field of `subject` is wrong and what was expected."""
    faults = []
    for fault in error.errors(include_url=False, include_context=False):
        place = ".".join(str(part) for part in fault["loc"]) or "value"
        text = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            text = "there is no such option"
        faults.append(f"{place}: {text}")
    return f"{subject}: " + "; ".join(faults)
