"""Whatever happens while an agent works, one frozen class per kind (section 14 of the engine rules).

An event is made without `pass` and `at`; the dispatch adds them when it is observed. `subagent_id` is the run id of the
innermost child whose loop made the event (SUB-61, SUB-64).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from outpost_lsp.domain.finding import Finding
from outpost_lsp.domain.record import Record
from outpost_lsp.domain.sandbox import Channel
from outpost_lsp.domain.usage import Usage

StopCause = Literal["completion", "idle-timeout", "deadline", "aborted", "oversized-event", "steered", "stuck"]
HookPhase = Literal["session-start", "before-model", "after-model", "before-tool", "after-tool", "stop"]
UsageSource = Literal["model", "decision", "summary"]


class Event(Record):
    """What all events share."""

    kind: str
    subagent_id: str | None = None
    pass_: int | None = Field(default=None, alias="pass")
    at: str | None = None


class RoutedModel(Record):
    """The settings of a selected model, as they apply to the step."""

    name: str
    reasoning: str | None = None
    max_output_tokens: int | None = None


class PhaseEvent(Event):
    kind: Literal["phase"] = "phase"
    name: str
    agent: str | None = None
    branch: str | None = None
    directory: str | None = None


class PromptEvent(Event):
    kind: Literal["prompt"] = "prompt"
    text: str


class ConversationEvent(Event):
    kind: Literal["conversation"] = "conversation"
    id: str


class InstructionsLoadedEvent(Event):
    kind: Literal["instructions-loaded"] = "instructions-loaded"
    count: int


class SkillsLoadedEvent(Event):
    kind: Literal["skills-loaded"] = "skills-loaded"
    names: tuple[str, ...]


class StepEvent(Event):
    kind: Literal["step"] = "step"
    index: int


class ModelRouteEvent(Event):
    kind: Literal["model-route"] = "model-route"
    step: int
    choice: str
    model: RoutedModel
    reason: Literal["selected", "confidence", "unavailable"]
    confidence: float | None = None
    reported_confidence: float | None = None
    rule: str | None = None


class ModelRequestEvent(Event):
    kind: Literal["model-request"] = "model-request"
    request: Any


class ModelResponseEvent(Event):
    kind: Literal["model-response"] = "model-response"
    response: Any


class ModelRetryEvent(Event):
    kind: Literal["model-retry"] = "model-retry"
    attempt: int
    message: str | None = None
    wait_s: float | None = None


class ModelErrorEvent(Event):
    """A request that failed. `model` is the one that was asked, for readers of the event."""

    kind: Literal["model-error"] = "model-error"
    message: str
    model: str | None = None


class TextEvent(Event):
    kind: Literal["text"] = "text"
    text: str


class TextDeltaEvent(Event):
    kind: Literal["text-delta"] = "text-delta"
    text: str


class ResultEvent(Event):
    kind: Literal["result"] = "result"
    text: str


class ReasoningEvent(Event):
    kind: Literal["reasoning"] = "reasoning"
    text: str
    parent_call_id: str | None = None


class ToolEvent(Event):
    kind: Literal["tool"] = "tool"
    name: str
    input: Any = None
    call_id: str | None = None
    parent_call_id: str | None = None


class ToolOutputEvent(Event):
    kind: Literal["tool-output"] = "tool-output"
    call_id: str
    channel: Channel
    text: str


class ToolDeniedEvent(Event):
    kind: Literal["tool-denied"] = "tool-denied"
    call_id: str
    name: str
    reason: str


class ToolResultEvent(Event):
    """A call is over. Results are told together; `started_at` and `duration_ms` say when the call itself ran."""

    kind: Literal["tool-result"] = "tool-result"
    call_id: str
    name: str
    is_error: bool
    preview: str
    characters: int
    parent_call_id: str | None = None
    started_at: str | None = None
    duration_ms: int | None = None


class FileChangeEvent(Event):
    kind: Literal["file-change"] = "file-change"
    changes: tuple[Mapping[str, Any], ...]
    call_id: str | None = None


class FindingEvent(Event):
    """A finding that was accepted, or the reason why one was refused."""

    kind: Literal["finding"] = "finding"
    finding: Finding | None = None
    rejected: str | None = None
    call_id: str


class HookEvent(Event):
    kind: Literal["hook"] = "hook"
    phase: HookPhase
    changed: bool


class CompactionEvent(Event):
    kind: Literal["compaction"] = "compaction"
    strategy: str
    messages: int


class StopPreventedEvent(Event):
    kind: Literal["stop-prevented"] = "stop-prevented"
    message: str


class SubagentEvent(Event):
    kind: Literal["subagent"] = "subagent"
    id: str
    call_id: str
    name: str
    status: Literal["started", "finished", "failed"]
    conversation: str | None = None


class SteerEvent(Event):
    kind: Literal["steer"] = "steer"
    text: str
    mode: Literal["injected", "resumed"]


class StuckEvent(Event):
    kind: Literal["stuck"] = "stuck"
    activity: Literal["tool", "file-change"]
    name: str | None = None
    repeats: int
    window: int
    action: Literal["stop", "warn", "steer"]


class UsageEvent(Event):
    """One accounted request. `step`, `model` and `source` say where it came from, for readers of the event."""

    kind: Literal["usage"] = "usage"
    tokens: Usage
    cumulative: bool | None = None
    step: int | None = None
    model: str | None = None
    source: UsageSource | None = None


class MessageUsageEvent(Event):
    kind: Literal["message-usage"] = "message-usage"
    tokens: Usage
    message_id: str | None = None
    parent_call_id: str | None = None


class SummaryEvent(Event):
    kind: Literal["summary"] = "summary"
    duration_ms: int
    status: int
    tokens: Usage


class QuotaEvent(Event):
    kind: Literal["quota"] = "quota"
    message: str
    reset_at: str | None = None


class Candidate(Record):
    """A candidate of a fallback agent."""

    index: int
    name: str
    model: str | None = None


class FallbackEvent(Event):
    kind: Literal["fallback"] = "fallback"
    from_: Candidate = Field(alias="from")
    to: Candidate
    failure: str
    message: str
    reset_at: str | None = None


class StoppedEvent(Event):
    kind: Literal["stopped"] = "stopped"
    reason: StopCause


class StderrEvent(Event):
    kind: Literal["stderr"] = "stderr"
    text: str
    truncated: bool | None = None


class WarningEvent(Event):
    kind: Literal["warning"] = "warning"
    message: str


class FailureEvent(Event):
    kind: Literal["failure"] = "failure"
    message: str


class FinishedEvent(Event):
    kind: Literal["finished"] = "finished"


class RawEvent(Event):
    kind: Literal["raw"] = "raw"
    value: Any = None
    bytes: int | None = None
    truncated: bool | None = None


AgentEvent = Annotated[
    PhaseEvent
    | PromptEvent
    | ConversationEvent
    | InstructionsLoadedEvent
    | SkillsLoadedEvent
    | StepEvent
    | ModelRouteEvent
    | ModelRequestEvent
    | ModelResponseEvent
    | ModelRetryEvent
    | ModelErrorEvent
    | TextEvent
    | TextDeltaEvent
    | ResultEvent
    | ReasoningEvent
    | ToolEvent
    | ToolOutputEvent
    | ToolDeniedEvent
    | ToolResultEvent
    | FileChangeEvent
    | FindingEvent
    | HookEvent
    | CompactionEvent
    | StopPreventedEvent
    | SubagentEvent
    | SteerEvent
    | StuckEvent
    | UsageEvent
    | MessageUsageEvent
    | SummaryEvent
    | QuotaEvent
    | FallbackEvent
    | StoppedEvent
    | StderrEvent
    | WarningEvent
    | FailureEvent
    | FinishedEvent
    | RawEvent,
    Field(discriminator="kind"),
]
