"""An agent that another calls as a tool: the loop again, with a history of its own (SUB rules).

The child works in its parent's sandbox. It keeps its own history, permissions, limits, hooks and routing; its tokens
are charged all the way up, and all its ancestors' permissions apply to it.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any, Final, Literal

from pydantic import field_validator

from outpost_lsp.domain.event import SubagentEvent
from outpost_lsp.domain.record import Declaration
from outpost_lsp.domain.tool import ToolOutput
from outpost_lsp.errors import OutpostError, configuration, record_recovery
from outpost_lsp.harness.agent import DEFAULT, MAX_DELEGATION_DEPTH, Agent
from outpost_lsp.harness.budget import Budget
from outpost_lsp.harness.gate import Gate
from outpost_lsp.harness.loop import Loop
from outpost_lsp.harness.runtime import Memory, TurnRuntime, captured
from outpost_lsp.harness.tool_calls import LoopTool, ToolCall
from outpost_lsp.storage.conversations import ConversationStore
from outpost_lsp.storage.transcript import Transcript

_INPUT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"prompt": {"type": "string", "minLength": 1, "description": "What the agent is to do."}},
    "required": ["prompt"],
    "additionalProperties": False,
}


def _outside(_value: Any, _context: Any) -> ToolOutput:
    raise configuration("a subagent runs only when an agent calls it")


class Subagent(LoopTool):
    """An agent declared once and given to another as a tool. `name` is the tool's name, `description` says when."""

    agent: Agent

    def __init__(self, name: str, description: str, agent: Agent) -> None:
        # Not `Tool.__init__`: a subagent has one more field, and its other fields are fixed.
        Declaration.__init__(self, name=name, description=description, input=_INPUT, execute=_outside, agent=agent)

    @field_validator("agent", mode="before")
    @classmethod
    def _is_built_in(cls, value: Any) -> Any:
        if not isinstance(value, Agent):
            kind = "nothing" if value is None else type(value).__name__
            raise ValueError(f"an Agent with a harness is expected, not {kind}")
        return value

    async def run_in(self, value: Any, call: ToolCall, parent: Loop) -> ToolOutput:
        """One delegation: a fresh history, the parent's sandbox, the child's answer as JSON text."""
        if not value["prompt"].strip():
            raise configuration(f"{self.name}: the prompt is blank")
        if parent.depth >= parent.ceiling:
            raise OutpostError(
                "limit",
                f"{self.name} cannot be called: {parent.name} may delegate {parent.ceiling - parent.depth} levels down",
                {"limit": "maxDelegationDepth", "agent": parent.name},
            )
        parent.budget.check()
        return await _Delegation(self, call, parent).run(value["prompt"])


class _Delegation:
    """One run of a child, from its opened transcript to its last event."""

    def __init__(self, subagent: Subagent, call: ToolCall, parent: Loop) -> None:
        self._subagent = subagent
        self._call = call
        self._parent = parent
        self._run_id = uuid.uuid4().hex
        self._conversation: str | None = None

    async def run(self, prompt: str) -> ToolOutput:
        parent, store = self._parent, store_of(self._subagent.agent, self._parent.runtime)
        try:
            memory = Memory(self._opened(store))
            self._conversation = memory.conversation
            if store is not None and memory.conversation is not None:
                parent.runtime.conversations.append((store, memory.conversation))
            self._tell("started")
            try:
                text = await self._loop(memory).run(prompt)
            finally:
                # The lock goes in every case, so that the conversation can be resumed (SUB-57).
                memory.close()
                if parent.runtime.steering is not None:
                    parent.runtime.steering.run_ended(self._run_id)
            self._capture(store)
        except asyncio.CancelledError:
            # A cancelled parent tells nothing more; a mere deadline does (SUB-67).
            self._capture_after_failure(store, None)
            if self._call.expired:
                self._tell("failed")
            raise
        except Exception as error:
            self._capture_after_failure(store, error)
            self._tell("failed")
            raise
        self._tell("finished")
        answer = {"text": text}
        if self._conversation is not None:
            answer["conversation"] = self._conversation
        return ToolOutput(json.dumps(answer, ensure_ascii=False))

    def _opened(self, store: ConversationStore | None) -> Transcript | None:
        if store is None:
            return None
        agent = self._subagent.agent
        return store.create(
            model=agent.model.name,
            version=1 if agent.harness.routing is None else 2,
            parent_conversation=self._parent.memory.conversation,
            parent_call_id=self._call.block.id,
        )

    def _loop(self, memory: Memory) -> Loop:
        parent, agent = self._parent, self._subagent.agent
        depth = parent.depth + 1
        own = agent.harness.limits.max_delegation_depth
        chain = parent.gate.chain
        if agent.harness.permissions is not None:
            chain = (*chain, agent.harness.permissions)
        return Loop(
            parent.runtime,
            agent,
            name=self._subagent.name,
            memory=memory,
            budget=Budget(self._subagent.name, agent.harness.limits.usage, parent.budget),
            gate=Gate(chain, parent.runtime.asking),
            run_id=self._run_id,
            depth=depth,
            ceiling=min(parent.ceiling, depth + (MAX_DELEGATION_DEPTH if own is None else own)),
        )

    def _capture(self, store: ConversationStore | None) -> None:
        if store is not None and self._conversation is not None:
            captured(store, self._conversation)

    def _capture_after_failure(self, store: ConversationStore | None, error: Exception | None) -> None:
        try:
            self._capture(store)
        except Exception as fault:  # noqa: BLE001 - whatever it is, it must not hide the first failure (SUB-56)
            if error is not None and fault is not error:
                record_recovery(error, {"conversation": self._conversation, "capture": str(fault)})

    def _tell(self, status: Literal["started", "finished", "failed"]) -> None:
        self._parent.emit(
            SubagentEvent(
                id=self._run_id,
                call_id=self._call.block.id,
                name=self._subagent.name,
                status=status,
                conversation=self._conversation,
            )
        )


def store_of(agent: Agent, runtime: TurnRuntime) -> ConversationStore | None:
    """Where the transcripts of an agent go; `None` when it keeps none."""
    own: Any = agent.harness.conversations
    store: ConversationStore | None = runtime.store if own is DEFAULT else own
    return store if store is None or runtime.mask is None else store.masking(runtime.mask)
