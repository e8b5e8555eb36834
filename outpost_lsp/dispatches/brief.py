"""What an agent is asked to do: a literal text, or a template file with values and commands (BRIEF rules)."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
from pydantic import field_validator, model_validator

from outpost_lsp.domain.record import Declaration
from outpost_lsp.domain.sandbox import Command, Lease
from outpost_lsp.errors import OutpostError

RESERVED: Final = frozenset({"WORK_BRANCH", "BASE_BRANCH"})
_VARIABLE: Final = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_COMMAND: Final = re.compile(r"!`([^`\n]+)`")
_CHARACTERS_PER_TOKEN: Final = 4


class Brief(Declaration):
    """Exactly one of `text`, taken literally, and `file`, a template that is read at each pass."""

    text: str | None = None
    file: Path | None = None
    values: Mapping[str, Any] | None = None

    def __init__(
        self, text: str | None = None, *, file: str | Path | None = None, values: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(text=text, file=file, values=values)

    @model_validator(mode="after")
    def _one_source(self) -> Brief:
        if (self.text is None) == (self.file is None):
            raise ValueError("exactly one of text and file is expected")
        if self.text is not None and self.values is not None:
            raise ValueError("values: only a template file takes values")
        if self.text is not None and not self.text.strip():
            raise ValueError("text: is blank")
        return self

    @field_validator("values")
    @classmethod
    def _plain_values(cls, value: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        for name, item in (value or {}).items():
            if name in RESERVED:
                raise ValueError(f"{name} is a built-in name")
            if not _VARIABLE.fullmatch(f"{{{{{name}}}}}"):
                raise ValueError(f"{name!r} is no variable name")
            if not isinstance(item, str | bool | int | float) or (isinstance(item, float) and not math.isfinite(item)):
                raise ValueError(f"{name}: text, a finite number or a boolean is expected")
        return value

    @classmethod
    def of(cls, brief: str | Brief) -> Brief:
        """The brief itself, or the literal one that a text is shorthand for."""
        return brief if isinstance(brief, Brief) else cls(brief)


async def render(
    brief: Brief,
    *,
    lease: Lease,
    branches: Mapping[str, str],
    expansion_s: float,
    warn: Callable[[str], None],
    diagnostic: Callable[[str], None],
) -> str:
    """The prompt. A template's variables are replaced first, then its commands run concurrently in the sandbox.

    Values are never scanned for commands or variables (BRIEF-05). Raises `prompt` for an unknown name or a command
    that failed.
    """
    if brief.text is not None:
        return brief.text
    assert brief.file is not None
    try:
        template = await anyio.to_thread.run_sync(brief.file.read_text)
    except (OSError, UnicodeDecodeError) as error:
        raise OutpostError("prompt", f"the brief file {brief.file} cannot be read: {error}") from error
    values = {**branches, **{name: _text(value) for name, value in (brief.values or {}).items()}}
    used: set[str] = set()

    def replaced(part: str) -> str:
        return _VARIABLE.sub(lambda match: _value(match.group(1), values, used), part)

    pieces = _COMMAND.split(template)
    # Every second piece is a command; values are put into it before it runs.
    texts = [replaced(piece) for piece in pieces]
    outputs = await _outputs(lease, texts[1::2], expansion_s)
    texts[1::2] = outputs
    for name in sorted(set(brief.values or {}) - used):
        warn(f"the brief never uses the value {name}")
    prompt = "".join(texts)
    diagnostic(f"the brief is about {len(prompt) // _CHARACTERS_PER_TOKEN} tokens long")
    return prompt


def _value(name: str, values: Mapping[str, str], used: set[str]) -> str:
    if name not in values:
        raise OutpostError("prompt", f"the brief names the variable {name}, which has no value", {"variable": name})
    used.add(name)
    return values[name]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _outputs(lease: Lease, commands: list[str], expansion_s: float) -> list[str]:
    tasks = [asyncio.ensure_future(_output(lease, command, expansion_s)) for command in commands]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _output(lease: Lease, command: str, expansion_s: float) -> str:
    details: dict[str, Any] = {"command": command}
    try:
        result = await lease.invoke(Command(executable="sh", arguments=("-c", command), deadline_s=expansion_s))
    except OutpostError as error:
        raise OutpostError("prompt", f"a command of the brief failed: {error.message}", details) from error
    if result.status != 0:
        details |= {"status": result.status, "stdout": result.stdout, "stderr": result.stderr}
        raise OutpostError("prompt", f"a command of the brief ended with status {result.status}", details)
    return result.stdout.rstrip()
