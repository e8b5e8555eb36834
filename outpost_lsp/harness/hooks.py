"""Code of the application around the phases of a turn: it may add instructions, rewrite or veto (HOOK rules).

A hook belongs to the harness that declares it; a parent's hooks never see a child's tool calls (HOOK-06).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from outpost_lsp.domain.event import HookEvent, HookPhase
from outpost_lsp.domain.message import Message, ToolCallBlock
from outpost_lsp.domain.model import ModelResult, ModelSpec
from outpost_lsp.domain.record import Declaration, NonBlank
from outpost_lsp.domain.sandbox import Lease
from outpost_lsp.domain.tool import ToolOutput
from outpost_lsp.errors import OutpostError


@dataclass(frozen=True, slots=True, kw_only=True)
class HookInput:
    """What a hook is given. `model` is the active one; what a phase does not know is `None`."""

    sandbox: Lease
    model: ModelSpec
    step: int
    prompt: str | None = None
    messages: Sequence[Message] | None = None
    result: ModelResult | ToolOutput | None = None
    call: ToolCallBlock | None = None
    text: str | None = None


HookResult = Mapping[str, Any] | None
HookFunction = Callable[[HookInput], Any]

_ALLOWED: Final[Mapping[HookPhase, frozenset[str]]] = {
    "session-start": frozenset({"instructions"}),
    "before-model": frozenset(),
    "after-model": frozenset(),
    "before-tool": frozenset({"deny", "input"}),
    "after-tool": frozenset({"result"}),
    "stop": frozenset({"continue"}),
}
_IGNORED: Final = frozenset({"before-model", "after-model"})


class Hook(Declaration):
    """A function, plain or coroutine, that runs in one phase.

    It returns nothing, or a mapping with the one key its phase allows: `instructions` (session-start), `deny` or
    `input` (before-tool), `result` (after-tool), `continue` (stop).
    """

    on: HookPhase
    run: HookFunction
    name: NonBlank

    def __init__(self, on: HookPhase, run: HookFunction, name: str | None = None) -> None:
        super().__init__(on=on, run=run, name=on if name is None else name)


class Hooks:
    """The hooks of one harness by phase. Phases without hooks cost nothing."""

    def __init__(self, hooks: Iterable[Hook]) -> None:
        self._by_phase: dict[str, tuple[Hook, ...]] = {}
        for hook in hooks:
            self._by_phase[hook.on] = (*self._by_phase.get(hook.on, ()), hook)

    def has(self, phase: HookPhase) -> bool:
        """Whether anything runs in this phase."""
        return phase in self._by_phase

    def of(self, phase: HookPhase) -> tuple[Hook, ...]:
        """The hooks of a phase, in declaration order (HOOK-01)."""
        return self._by_phase.get(phase, ())


async def run_hook(hook: Hook, given: HookInput, emit: Callable[[HookEvent], None]) -> HookResult:
    """Run one hook and check the shape of what it returns (HOOK-04)."""
    result = hook.run(given)
    if inspect.isawaitable(result):
        result = await result
    if hook.on in _IGNORED:
        result = None
    if result is not None:
        _check(hook, result)
    changed = result is not None and not (hook.on == "before-tool" and "input" in result and _same_input(result, given))
    emit(HookEvent(phase=hook.on, changed=changed))
    checked: HookResult = result
    return checked


def _same_input(result: Mapping[str, Any], given: HookInput) -> bool:
    # The same object handed back is no replacement (HOOK-05).
    return given.call is not None and result["input"] is given.call.input


def _check(hook: Hook, result: Any) -> None:
    allowed = _ALLOWED[hook.on]
    if not isinstance(result, Mapping) or len(result) != 1 or not set(result) <= allowed:
        raise OutpostError(
            "configuration", f"hook {hook.name}: expected nothing or a mapping with one of {sorted(allowed)}"
        )
    ((key, value),) = result.items()
    if key == "result":
        tool_output(value, f"hook {hook.name}")
    elif key != "input" and not (isinstance(value, str) and value.strip()):
        raise OutpostError("configuration", f"hook {hook.name}: {key} must be text that is not blank")


def tool_output(value: Any, subject: str) -> ToolOutput:
    """What a tool or an after-tool hook gave, as a `ToolOutput`; `configuration` for another shape (TOOL-07)."""
    if isinstance(value, ToolOutput):
        return value
    if isinstance(value, str):
        return ToolOutput(value)
    if isinstance(value, Mapping) and "content" in value and not set(value) - {"content", "is_error"}:
        content, is_error = value["content"], value.get("is_error", False)
        if isinstance(content, str) and isinstance(is_error, bool):
            return ToolOutput(content, is_error)
    raise OutpostError("configuration", f"{subject}: text or {{content, is_error}} is expected, not {_kind(value)}")


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a value of type {type(value).__name__}"
