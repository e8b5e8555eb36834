"""Choosing the model of each step by a decision (ROUTE rules).

The decision service is asked once per step; its answer, or the fallback, is in force for exactly that step. Doubt and
outage select the fallback, everything else is raised as the same exception object.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from outpost_lsp.decisions.decide import decide
from outpost_lsp.domain.decision import Choice, ChoiceAnswer, Decision, DecisionProvider, DecisionResult
from outpost_lsp.domain.event import Event, ModelRouteEvent, RoutedModel
from outpost_lsp.domain.lossless import lossless_fault
from outpost_lsp.domain.message import Message, TextBlock
from outpost_lsp.domain.model import ModelSpec, ToolSpec
from outpost_lsp.domain.record import Declaration, NonBlank
from outpost_lsp.domain.routing_state import RoutingState
from outpost_lsp.domain.usage import Usage
from outpost_lsp.errors import OutpostError, unavailable_fault

RouteReason = Literal["selected", "confidence", "unavailable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingContext:
    """What a state callback is given (ROUTE-23). `model` is the one active before this selection (ROUTE-26)."""

    step: int
    model: ModelSpec
    messages: Sequence[Message]
    system: str | None
    tools: tuple[ToolSpec, ...]


StateFunction = Callable[[RoutingContext], Any]


class ModelRouting(Declaration):
    """Which decision is asked at each step, and which model each of its labels means."""

    kind: Literal["model-routing"] = "model-routing"
    provider: Any
    model: NonBlank
    decision: Any
    question: NonBlank
    models: Mapping[str, ModelSpec]
    fallback: NonBlank
    min_confidence: Annotated[float, Field(strict=True, ge=0, le=1, allow_inf_nan=False)] = 0.85
    on_error: Literal["fallback", "fail"] = "fallback"
    state: StateFunction | None = None
    confidence_source: Literal["reported", "probabilities"] = "reported"

    def __init__(
        self,
        *,
        provider: DecisionProvider,
        model: str,
        decision: Decision,
        question: str,
        models: Mapping[str, str | ModelSpec],
        fallback: str,
        min_confidence: float = 0.85,
        on_error: Literal["fallback", "fail"] = "fallback",
        state: StateFunction | None = None,
        confidence_source: Literal["reported", "probabilities"] = "reported",
    ) -> None:
        super().__init__(
            provider=provider,
            model=model,
            decision=decision,
            question=question,
            models=models,
            fallback=fallback,
            min_confidence=min_confidence,
            on_error=on_error,
            state=state,
            confidence_source=confidence_source,
        )

    @field_validator("models", mode="before")
    @classmethod
    def _named_models(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        try:
            return {str(label): ModelSpec.of(model) for label, model in value.items()}
        except OutpostError as error:
            raise ValueError(error.message) from error

    @field_validator("models")
    @classmethod
    def _frozen_models(cls, value: Mapping[str, ModelSpec]) -> Mapping[str, ModelSpec]:
        return MappingProxyType(dict(value))

    @field_validator("decision")
    @classmethod
    def _is_decision(cls, value: Any) -> Any:
        if not isinstance(value, Decision):
            raise ValueError("a Decision is expected")
        return value

    @field_validator("provider")
    @classmethod
    def _is_provider(cls, value: Any) -> Any:
        if not callable(getattr(value, "request", None)):
            raise ValueError("a decision provider is expected")
        return value

    @model_validator(mode="after")
    def _labels_match(self) -> ModelRouting:
        question = self.decision.questions.get(self.question)
        if not isinstance(question, Choice):
            raise ValueError(f"question: {self.question!r} is no choice question of the decision")
        missing = sorted(set(question.criteria) - set(self.models))
        extra = sorted(set(self.models) - set(question.criteria))
        if missing or extra:
            raise ValueError(f"models: must match the labels of the question; missing {missing}, extra {extra}")
        if self.fallback not in self.models:
            raise ValueError(f"fallback: {self.fallback!r} is no label of the question")
        return self

    def replace(self, **changes: Any) -> ModelRouting:
        """The same routing with some fields changed; validated again (ROUTE-07)."""
        fields = {name: getattr(self, name) for name in type(self).model_fields if name != "kind"}
        unknown = sorted(set(changes) - set(fields))
        if unknown:
            raise OutpostError("configuration", f"ModelRouting: {unknown[0]}: there is no such option")
        return ModelRouting(**{**fields, **changes})


@dataclass(frozen=True, slots=True)
class Selection:
    """The model of a step and the event that says why."""

    model: ModelSpec
    event: ModelRouteEvent
    outage: str | None = None
    """What kept the decision service from answering, in a sentence, where the fallback took the step for that."""


async def select_route(
    routing: ModelRouting,
    context: RoutingContext,
    *,
    observe: Callable[[Event], None],
    account: Callable[[Usage], None],
    verbose: bool = False,
) -> Selection:
    """Ask the decision service which model takes this step.

    `account` is called once for the request, whatever becomes of it (ROUTE-40, ROUTE-45), and may raise a budget's
    breach. Faults other than outage propagate unchanged (ROUTE-33).
    """
    state = await _state(routing, context)
    try:
        result = await decide(
            routing.provider, routing.model, routing.decision, state, observe=observe, account=account, verbose=verbose
        )
    except OutpostError as error:
        if routing.on_error == "fallback" and _is_outage(error):
            return replace(_selection(routing, context.step, routing.fallback, "unavailable"), outage=error.message)
        raise
    return _judged(routing, context.step, result)


def default_state(context: RoutingContext) -> RoutingState:
    """Session instructions, visible messages, tools, step and active model (ROUTE-20); opaque reasoning is left out."""
    return RoutingState(
        system=context.system,
        # A copy of the references: the history goes on growing while somebody may still look at this state.
        messages=tuple(context.messages),
        tools=context.tools,
        step=context.step,
        model=context.model.name,
    )


def focused_state(context: RoutingContext) -> dict[str, Any]:
    """Step, active model and the texts of the last four messages, for services that limit the state."""
    texts = [
        block.text for message in context.messages[-4:] for block in message.content if isinstance(block, TextBlock)
    ]
    return {"step": context.step, "activeModel": context.model.name, "recentText": texts}


async def _state(routing: ModelRouting, context: RoutingContext) -> Any:
    if routing.state is None:
        return default_state(context)
    state = routing.state(context)
    if inspect.isawaitable(state):
        state = await state
    if fault := lossless_fault(state, "state"):
        raise OutpostError("configuration", f"ModelRouting: {fault}")
    return state


def _is_outage(error: OutpostError) -> bool:
    return error.code == "timeout" or (error.code == "provider" and unavailable_fault(error) is not None)


def _judged(routing: ModelRouting, step: int, result: DecisionResult) -> Selection:
    answer = result.answers[routing.question]
    if not isinstance(answer, ChoiceAnswer) or answer.choice not in routing.models:
        raise OutpostError("response", f"the decision service chose no candidate of {routing.question!r}")
    reported = answer.confidence
    confidence = reported if routing.confidence_source == "reported" else _from_probabilities(answer)
    sure = confidence >= routing.min_confidence
    return _selection(
        routing,
        step,
        answer.choice if sure else routing.fallback,
        "selected" if sure else "confidence",
        confidence,
        None if routing.confidence_source == "reported" else reported,
        _rule(result),
    )


def _from_probabilities(answer: ChoiceAnswer) -> float:
    # How far the most probable label stands above an even spread: 0 for even, 1 for certain.
    even = 1 / len(answer.probabilities)
    return max(0.0, min(1.0, (max(answer.probabilities.values()) - even) / (1 - even)))


def _rule(result: DecisionResult) -> str | None:
    rule = result.metadata.get("x_rule") if isinstance(result.metadata, dict) else None
    return rule if isinstance(rule, str) else None


def _selection(
    routing: ModelRouting,
    step: int,
    choice: str,
    reason: RouteReason,
    confidence: float | None = None,
    reported_confidence: float | None = None,
    rule: str | None = None,
) -> Selection:
    model = routing.models[choice]
    routed = RoutedModel(name=model.name, reasoning=model.reasoning, max_output_tokens=model.max_output_tokens)
    event = ModelRouteEvent(
        step=step,
        choice=choice,
        model=routed,
        reason=reason,
        confidence=confidence,
        reported_confidence=reported_confidence,
        rule=rule,
    )
    return Selection(model, event)
