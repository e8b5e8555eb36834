"""The kinds of value that settings are made of: strict, so that nothing is guessed from a value of another type."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, Strict

MAX_COUNT: Final = 2**53 - 1
MAX_SECONDS: Final = 2_147_483

Text = Annotated[str, Strict()]
"""Text, possibly empty."""

FilledText = Annotated[str, Strict(), Field(pattern=r"\S")]
"""Text that is not blank."""

Flag = Annotated[bool, Strict()]
"""True or false."""

Count = Annotated[int, Strict(), Field(ge=0, le=MAX_COUNT)]
"""A whole number from 0."""

PositiveCount = Annotated[int, Strict(), Field(ge=1, le=MAX_COUNT)]
"""A whole number from 1."""

Seconds = Annotated[float, Strict(), Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)]
"""A number of seconds above 0."""

Fraction = Annotated[float, Strict(), Field(ge=0, le=1, allow_inf_nan=False)]
"""A number from 0 to 1."""

Money = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]
"""An amount from 0."""

AgentName = Annotated[str, Strict(), Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
"""A name that can also be a tool's: letters, digits, `_` and `-`, at most 64."""

ServerName = Annotated[str, Strict(), Field(pattern=r"^[A-Za-z0-9_-]{1,32}$")]
"""A name of an MCP server: letters, digits, `_` and `-`, at most 32."""

VariableName = Annotated[str, Strict(), Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""The name of an environment variable."""

OptionalVariableName = Annotated[str, Strict(), Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]*)?$")]
"""The name of an environment variable, or empty."""


class Section(BaseModel):
    """A table of settings: frozen, and closed to keys that it does not have.

    The text below each field is its description in the schema and the documentation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
