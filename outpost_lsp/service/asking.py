"""The question that a person is asked before a tool call runs, in words; how it is put is each face's own (SEC-20)."""

from __future__ import annotations

import json
from typing import Final

from outpost_lsp.domain.markdown import one_line
from outpost_lsp.service.signals import Question

PATIENCE_S: Final = 300.0
"""A question that is not answered for so long is a denial (PERM-10)."""

_SHOWN: Final = 2000


def question_text(question: Question) -> str:
    """The question in one line, with what the call would do; where arguments are long, both their ends."""
    shown = one_line(json.dumps(question.input, ensure_ascii=False, default=str), 1_000_000)
    if len(shown) > _SHOWN:
        half = _SHOWN // 2
        shown = f"{shown[:half]} … {len(shown) - 2 * half} characters not shown … {shown[-half:]}"
    return f"{question.agent} wants to use {question.tool} {shown} ({one_line(question.reason)})"
