"""A stage for agents: a real repository, a real worktree sandbox, a scripted model, and everything that was observed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outpost_lsp import (
    Agent,
    DispatchResult,
    Harness,
    ModelResult,
    ScriptedModelProvider,
    Usage,
    dispatch,
    tool,
)
from outpost_lsp.dispatches.sandboxing import WorktreeSandboxProvider
from outpost_lsp.domain.event import Event
from outpost_lsp.domain.message import ReasoningBlock, TextBlock, ToolCallBlock
from outpost_lsp.harness.runtime import Receipt
from outpost_lsp.storage.layout import Layout


def usage(input: int = 0, cached: int = 0, output: int = 0, **more: Any) -> Usage:
    """Token counts, zero where not said."""
    return Usage(input=input, cached=cached, output=output, **more)


def says(text: str, *, output: int = 1, tokens: Usage | None = None) -> ModelResult:
    """A final answer."""
    return ModelResult(text=text, usage=tokens or usage(2, 0, output))


def calls(
    *requests: tuple[str, Any] | tuple[str, Any, str], tokens: Usage | None = None, text: str = ""
) -> ModelResult:
    """An answer that asks for tools: (name, input) or (name, input, id)."""
    blocks: list[Any] = [TextBlock(text=text)] if text else []
    for number, request in enumerate(requests, 1):
        name, given, *rest = request
        blocks.append(ToolCallBlock(id=rest[0] if rest else f"call-{number}", name=name, input=given))
    return ModelResult(text=text, content=tuple(blocks), stop_reason="tool-calls", usage=tokens or usage(2, 0, 1))


def thinks(provider: str, model: str, text: str) -> ModelResult:
    """An answer with replayable reasoning."""
    content = (ReasoningBlock(provider=provider, model=model, data={"opaque": 1}, text="hm"), TextBlock(text=text))
    return ModelResult(text=text, content=content, usage=usage(2, 0, 1))


@tool
def echo(text: str) -> str:
    """Say it again."""
    return f"echo: {text}"


def provider(*replies: Any) -> ScriptedModelProvider:
    """A model that gives these replies in order."""
    return ScriptedModelProvider(list(replies))


def agent(*replies: Any, model: Any = "scripted", **harness: Any) -> Agent:
    """An agent on a scripted model."""
    return Agent(model, Harness(provider(*replies), **harness))


@dataclass
class Stage:
    """Dispatches agents on one repository and keeps what was observed."""

    repository: Path
    layout: Layout
    events: list[Event] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)

    async def run(self, subject: Agent, brief: Any = "go", **options: Any) -> DispatchResult:
        """Dispatch, collecting events and receipts."""
        options.setdefault("sandbox_provider", WorktreeSandboxProvider(layout=self.layout))
        options.setdefault("observe", self.events.append)
        options.setdefault("on_receipt", self.receipts.append)
        return await dispatch(self.repository, subject, brief, **options)

    def kinds(self) -> list[str]:
        """The kinds of all events, in order."""
        return [event.kind for event in self.events]

    def of(self, kind: str) -> list[Any]:
        """All events of one kind."""
        return [event for event in self.events if event.kind == kind]


def make_repository(folder: Path, files: dict[str, str] | None = None) -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True)
    for name, text in (files or {"readme.md": "hello\n", "src/app.py": "print('hi')\n"}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for arguments in (
        ["init", "-q", "-b", "main"],
        ["add", "-A"],
        ["-c", "user.name=T", "-c", "user.email=t@localhost", "commit", "-q", "-m", "first"],
    ):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    return folder


def texts(values: Iterable[Any]) -> list[str]:
    """The text of each event."""
    return [value.text for value in values]
