"""Whether the conversation in a request holds together, as a strict service would see it."""

from __future__ import annotations

from typing import Any


def results_in(form: str, body: dict[str, Any]) -> int:
    """How many tool results the conversation holds."""
    return sum(kind == "result" for kind, _ in _calls_and_results(form, body))


def problem_with_history(form: str, body: dict[str, Any]) -> str | None:
    """What is wrong: a call without result, a result without call, or two of either."""
    open_calls: list[str] = []
    for kind, id in _calls_and_results(form, body):
        if kind == "call":
            open_calls.append(id)
        elif id in open_calls:
            open_calls.remove(id)
        else:
            return f"a result for {id}, which was not called"
    return f"no result for {', '.join(open_calls)}" if open_calls else None


def _calls_and_results(form: str, body: dict[str, Any]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if form == "responses":
        items = body["input"] if isinstance(body["input"], list) else []
        for item in items:
            if item.get("type") == "function_call":
                found.append(("call", item["call_id"]))
            elif item.get("type") == "function_call_output":
                found.append(("result", item["call_id"]))
        return found
    for message in body["messages"]:
        if message["role"] == "tool":
            found.append(("result", message["tool_call_id"]))
        found.extend(("call", call["id"]) for call in message.get("tool_calls") or ())
        if form == "messages" and isinstance(message["content"], list):
            for block in message["content"]:
                if block["type"] == "tool_use":
                    found.append(("call", block["id"]))
                elif block["type"] == "tool_result":
                    found.append(("result", block["tool_use_id"]))
    return found
