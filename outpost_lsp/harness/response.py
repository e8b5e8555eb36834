"""Typed answers: what the model is told, how its answer is read, and how a bad one is repaired (RESP rules)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field, TypeAdapter, model_validator

from outpost_lsp.domain.record import Declaration, SafeInt, changeable
from outpost_lsp.domain.schema import check_schema, schema_issues
from outpost_lsp.domain.wording import ended
from outpost_lsp.errors import OutpostError

Tag = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")]

_FENCE: Final = re.compile(r"\A```(?:json)?[ \t]*\r?\n(.*?)\r?\n?```\Z", re.DOTALL)


class ResponseError(OutpostError):
    """A typed answer that could not be read. `raw` is what stood in the tag, `None` when no complete tag was found."""

    def __init__(self, tag: str, message: str, raw: str | None) -> None:
        super().__init__("response", message, {"tag": tag})
        self.tag = tag
        self.raw = raw


class TextResponse(Declaration):
    """The trimmed text of the last complete `<tag>…</tag>`."""

    tag: Tag = "response"
    repairs: SafeInt = 0

    def format(self) -> str:
        """What the model is told about the form of its answer (RESP-04)."""
        return (
            f"End your answer with exactly one block <{self.tag}>...</{self.tag}> and write nothing after it. "
            "This overrides any earlier wish about the form of the answer."
        )

    def read(self, text: str) -> Any:
        """The value; `ResponseError` when it is not there."""
        return tagged(text, self.tag)


class JsonResponse(TextResponse):
    """JSON in a tag, validated by a pydantic model, a `TypeAdapter`, a JSON Schema object or a callable.

    A callable gets the parsed JSON and returns the value; it needs `json_schema` to tell the model what is expected.
    """

    schema_: Any = Field(alias="schema")
    json_schema: Mapping[str, Any] | None = None

    def __init__(
        self,
        schema: type[BaseModel] | TypeAdapter[Any] | Mapping[str, Any] | Callable[[Any], Any],
        *,
        tag: str = "response",
        json_schema: Mapping[str, Any] | None = None,
        repairs: int = 0,
    ) -> None:
        super(TextResponse, self).__init__(schema=schema, tag=tag, json_schema=json_schema, repairs=repairs)

    @model_validator(mode="after")
    def _schema_is_known(self) -> JsonResponse:
        try:
            described = self.described()
            if isinstance(self.schema_, Mapping):
                check_schema(described, "schema")
        except OutpostError as error:
            raise ValueError(error.message) from error
        return self

    def described(self) -> Mapping[str, Any]:
        """The JSON Schema that the model is shown."""
        given = self.schema_ if self.json_schema is None else self.json_schema
        if isinstance(given, Mapping):
            plain: Mapping[str, Any] = changeable(given)
            return plain
        if isinstance(self.schema_, TypeAdapter):
            return self.schema_.json_schema()
        if isinstance(self.schema_, type) and issubclass(self.schema_, BaseModel):
            return self.schema_.model_json_schema()
        raise OutpostError("configuration", "schema: a callable needs json_schema beside it")

    def format(self) -> str:
        schema = json.dumps(self.described(), ensure_ascii=False)
        return f"{super().format()}\nThe block holds one JSON value that matches this JSON Schema:\n{schema}"

    def read(self, text: str) -> Any:
        raw = tagged(text, self.tag)
        fenced = _FENCE.match(raw)
        try:
            value = json.loads(fenced.group(1) if fenced else raw)
        except (ValueError, RecursionError) as error:
            raise ResponseError(self.tag, f"the answer is not JSON: {error}", raw) from error
        try:
            return self._validated(value)
        except Exception as error:  # a callable of the application says in its own way that it cannot use a value
            raise ResponseError(self.tag, f"the answer does not match its schema: {error}", raw) from error

    def _validated(self, value: Any) -> Any:
        if isinstance(self.schema_, Mapping):
            if issues := schema_issues(changeable(self.schema_), value):
                raise ValueError("; ".join(issues))
            return value
        if isinstance(self.schema_, TypeAdapter):
            return self.schema_.validate_python(value)
        if isinstance(self.schema_, type) and issubclass(self.schema_, BaseModel):
            return self.schema_.model_validate(value)
        return self.schema_(value)


ResponseSpec = TextResponse | JsonResponse


def tagged(text: str, tag: str) -> str:
    """The trimmed content of the last complete pair of tags (RESP-02)."""
    found = None
    for match in re.finditer(rf"<{re.escape(tag)}>(.*?)</{re.escape(tag)}>", text, re.DOTALL):
        found = match.group(1)
    if found is None:
        raise ResponseError(tag, f"the answer holds no complete <{tag}> block", None)
    # An opening tag inside means that an earlier block was never closed.
    return found.rsplit(f"<{tag}>", 1)[-1].strip()


def with_format(prompt: str, response: ResponseSpec | None) -> str:
    """The prompt with the format instructions after a blank line."""
    return prompt if response is None else f"{prompt}\n\n{response.format()}"


def repair_prompt(error: ResponseError, attempts_left: int) -> str:
    """What the model is told when its typed answer could not be read (RESP-07)."""
    previous = "There was no such block." if error.raw is None else f"The block held:\n{error.raw}"
    return (
        f"Your answer could not be used: {ended(error.message)}\n{previous}\n"
        f"Answer again, correctly this time; attempts left after this one: {attempts_left}. "
        "Edit no file and run no command for it."
    )
