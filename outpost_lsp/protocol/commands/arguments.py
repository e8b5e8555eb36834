"""What the arguments of commands are made of.

They are checked strictly, here and nowhere deeper: a field that is unknown, missing or of another type is refused with a
sentence that names it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

Text = Annotated[str, Field(min_length=1, pattern=r"\S")]


class ArgumentsError(ValueError):
    """An argument that is refused; the message names the field."""


class Params(BaseModel):
    """What a command takes: camelCase, nothing unknown, nothing converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel)


class NoParams(Params):
    """Nothing."""


class Startable(Params):
    """What every command that starts a run takes."""

    wait: bool = Field(default=False, description="answer when the run has finished, not when it is queued")


class RunParams(Params):
    """A run."""

    run_id: Text


class ViewParams(RunParams):
    """A run to look at."""

    open: bool = Field(
        default=False, description="also show it in the editor (`window/showDocument`): the report, or the patch"
    )


def described(error: ValidationError) -> str:
    """What is wrong with an argument, each fault with its field."""
    faults = []
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        field = ".".join(str(part) for part in fault["loc"])
        text = fault["msg"].removeprefix("Value error, ")
        match fault["type"]:
            case "extra_forbidden":
                text = "there is no such field"
            case "missing":
                text = "is missing"
            case "string_pattern_mismatch" | "string_too_short":
                text = "is blank"
        faults.append(f"{field}: {text}" if field else text)
    return "; ".join(faults)
