"""What an agent hands in when it reports a finding: the fields of `report_finding`, as models see and misspell them.

The schema shown to models is exact; what they send is read a little more widely (another word for a severity, a number
as text), so that a good finding is not lost to a trifle.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.annotated_handlers import GetJsonSchemaHandler
from pydantic_core import CoreSchema

from outpost_lsp.domain.finding import SEVERITIES, Severity

_SEVERITY_WORDS: Final[dict[str, Severity]] = {
    "blocker": "error",
    "critical": "error",
    "fatal": "error",
    "high": "error",
    "major": "error",
    "medium": "warning",
    "moderate": "warning",
    "warn": "warning",
    "info": "information",
    "low": "information",
    "minor": "information",
    "note": "information",
    "nit": "hint",
    "suggestion": "hint",
    "trivial": "hint",
}
_RULE_CODE: Final = re.compile(r"[A-Z]{1,10}[0-9]{1,6}")
_SLUG_LENGTH: Final = 64

REPORT_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "description": "The file, relative to the repository."},
        "quote": {
            "type": "string",
            "minLength": 1,
            "description": "The source text that shows the fault, copied as it stands: one to five whole lines, or part "
            "of one. No line numbers, no diff marks.",
        },
        "severity": {
            "type": "string",
            "enum": list(SEVERITIES),
            "description": "error: wrong on an ordinary path; warning: wrong on an unusual one; information: likely to "
            "break with the next change; hint: everything else.",
        },
        "code": {
            "type": "string",
            "minLength": 1,
            "description": "A short slug of the kind of fault, not of its place, such as unchecked-input.",
        },
        "title": {"type": "string", "minLength": 1, "description": "The consequence, in one line."},
        "detail": {
            "type": "string",
            "description": "Markdown, one short paragraph: the condition, the way to the failure, the effect.",
        },
        "line": {
            "type": "integer",
            "minimum": 1,
            "description": "The line the quote begins on, from 1; decides only where the same text stands several times.",
        },
        "confidence": {"type": "number", "minimum": 0, "maximum": 1, "description": "How likely it is true."},
        "caused_by_change": {
            "type": "boolean",
            "description": "True when the reviewed change causes a fault outside its own lines; say how in the detail.",
        },
        "replacement": {
            "type": "string",
            "description": "Text to put in place of the quote, only if that alone solves the whole fault.",
        },
    },
    "required": ["path", "quote", "severity", "code", "title", "detail"],
    "additionalProperties": False,
}


def severity_word(value: Any) -> Any:
    """The severity a word means; what means none is returned as it is, to be refused with the list."""
    word = value.strip().lower() if isinstance(value, str) else value
    return _SEVERITY_WORDS.get(word, word) if isinstance(word, str) else word


def slug(code: str) -> str:
    """A code in lower case with dashes; rule codes like F821 keep their spelling."""
    text = code.strip()
    if _RULE_CODE.fullmatch(text):
        return text
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", text).lower()
    return re.sub(r"[\W_]+", "-", text).strip("-")[:_SLUG_LENGTH].strip("-") or "finding"


class ReportedFinding(BaseModel):
    """One call of `report_finding`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Annotated[str, Field(min_length=1)]
    quote: Annotated[str, Field(min_length=1)]
    severity: Annotated[Severity, BeforeValidator(severity_word)]
    code: Annotated[str, Field(pattern=r"\S")]
    title: Annotated[str, Field(pattern=r"\S")]
    detail: str
    line: Annotated[int | None, Field(ge=1)] = None
    confidence: Annotated[float | None, Field(ge=0, le=1, allow_inf_nan=False)] = None
    caused_by_change: bool | None = None
    replacement: str | None = None

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        # Models read this; the generated form would add titles, null alternatives and defaults to every field.
        return REPORT_SCHEMA
