"""A run as a tree on a terminal: agents, what each is doing, routes, findings and usage, redrawn while it works.

The tree shows the present and the last few deeds of each agent; whatever is worth keeping is printed by the command
itself when the run has ended. Lines that are typed meanwhile are instructions to the agent (`session.py` reads them).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text
from rich.tree import Tree

from outpost_lsp.cli.progress import SeenFindings, event_text, route_text, status_text, tokens_text
from outpost_lsp.domain.event import Event, FindingEvent, StepEvent, SubagentEvent
from outpost_lsp.domain.markdown import one_line
from outpost_lsp.domain.run import Run
from outpost_lsp.domain.usage import ZERO, Usage
from outpost_lsp.domain.wording import count_of
from outpost_lsp.service.signals import Notice, Routed, RunChanged, RunEvent, Signal, SubagentChanged, Used

_SHOWN_DEEDS: Final = 4
_PERIOD_S: Final = 0.1
_MARKS: Final = {"succeeded": "[green]✔[/]", "failed": "[red]✘[/]", "cancelled": "[yellow]■[/]"}


@dataclass(slots=True)
class _AgentView:
    name: str
    parent: str | None
    state: str = "working"
    step: int = 0
    route: str = ""
    findings: set[str] = field(default_factory=set)
    usage: Usage = ZERO
    deeds: deque[str] = field(default_factory=lambda: deque(maxlen=_SHOWN_DEEDS))


class LiveProgress:
    """A listener that draws; a context manager around the run."""

    def __init__(self, stream: TextIO) -> None:
        self._run: Run | None = None
        self._began = time.monotonic()
        self._agents: dict[str | None, _AgentView] = {}
        self._notices: list[str] = []
        self._choices = ""
        self._seen = SeenFindings()
        self._spinner = Spinner("dots")
        self._timer: asyncio.TimerHandle | None = None
        # Drawn from the event loop alone: a thread of the library's would look at agents while they change.
        console = Console(file=stream, highlight=False)
        self._live = Live(console=console, auto_refresh=False, get_renderable=self.picture)

    def __enter__(self) -> Self:
        self._live.start()
        self._draw()
        return self

    def _draw(self) -> None:
        self._live.refresh()
        self._timer = asyncio.get_running_loop().call_later(_PERIOD_S, self._draw)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._live.refresh()
        self._live.stop()

    def __call__(self, signal: Signal) -> None:
        match signal:
            case RunChanged(run=run):
                self._run = run
                view = self._agents.setdefault(None, _AgentView(run.agent, None))
                view.state = run.status if run.is_finished else "working"
            case Notice(level=level, message=message):
                self._notices.append(f"{level}: {message}")
            case Routed():
                self._view(signal.subagent_id).route = route_text(signal)
            case Used():
                view = self._view(signal.subagent_id)
                view.usage = view.usage + signal.delta
            case SubagentChanged(event=event):
                self._delegation(signal.parent_id, event)
            case RunEvent(observation=observation):
                self._event(observation.event)

    def show_question(self, text: str | None) -> None:
        """Put a question above the tree, whole, and its choices below it until it is settled."""
        question, _, self._choices = (text or "").rpartition("\n")
        if question:
            self._live.console.print(Text(f"? {question}", style="bold yellow"))
        self._live.refresh()

    def picture(self) -> RenderableType:
        """What stands on the terminal now."""
        if self._run is None:
            return Text("")
        root = self._agents[None]
        head = self._head(self._run)
        tree = Tree(head, guide_style="dim")
        self._fill(tree, None, root)
        end = () if self._is_running else (Text(""),)
        notes = [Text(f"• {one_line(note, 200)}", style="dim") for note in (*self._notices, *self._run.notes)]
        asked = (Text(self._choices, style="bold yellow"),) if self._choices else ()
        return Group(tree, *notes, *asked, *end)

    @property
    def _is_running(self) -> bool:
        return self._run is not None and not self._run.is_finished

    def _head(self, run: Run) -> RenderableType:
        seconds = f"{time.monotonic() - self._began:.0f} s"
        facts = [_safe(status_text(run)), seconds]
        if run.usage.input or run.usage.output:
            facts.append(tokens_text(run.usage))
        text = f"[bold]{_safe(run.title)}[/] [dim]{' · '.join(facts)}[/]"
        if run.is_finished:
            return Text.from_markup(f"{_MARKS.get(run.status, '·')} {text}")
        self._spinner.update(text=Text.from_markup(text))
        return self._spinner

    def _fill(self, branch: Tree, id: str | None, view: _AgentView) -> None:
        label = branch.add(self._label(view))
        if view.route:
            label.add(Text(one_line(view.route), style="magenta"))
        for deed in view.deeds if self._is_running else ():
            label.add(Text(deed, style="dim"))
        for child, child_view in self._agents.items():
            if child is not None and child_view.parent == id:
                self._fill(label, child, child_view)

    def _label(self, view: _AgentView) -> Text:
        text = Text(view.name, style="bold cyan")
        text.append(f"  step {view.step}, {view.state}", style="default not bold")
        if view.findings:
            text.append(f", {count_of(len(view.findings), 'finding')}", style="yellow not bold")
        if view.usage.input or view.usage.output:
            text.append(f", {tokens_text(view.usage)}", style="dim not bold")
        return text

    def _view(self, subagent_id: str | None) -> _AgentView:
        return self._agents.setdefault(subagent_id, _AgentView(subagent_id or "agent", None))

    def _delegation(self, parent: str | None, event: SubagentEvent) -> None:
        view = self._agents.setdefault(event.id, _AgentView(event.name, parent))
        view.state = {"started": "working", "finished": "finished", "failed": "failed"}[event.status]

    def _event(self, event: Event) -> None:
        view = self._view(event.subagent_id)
        if isinstance(event, StepEvent):
            view.step = event.index
        is_news = self._seen.is_news(event)
        if isinstance(event, FindingEvent) and event.finding is not None and is_news:
            # Another agent's word on the same finding makes it no second one.
            view.findings.add(event.finding.id)
        text = event_text(event)
        if text is not None and is_news:
            view.deeds.append(one_line(text, 100))


def _safe(text: str) -> str:
    return one_line(text).replace("[", r"\[")
