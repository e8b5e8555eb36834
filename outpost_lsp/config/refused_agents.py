"""What an untrusted workspace file says of agents that it may not have: it goes with them, and the rest of the file stays.

Without this a name that stands for a refused agent would be a fault, and one fault makes a whole file count for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outpost_lsp.config.toml_lines import Path


def without_refused_agents(
    tree: Mapping[str, Any], kept: dict[str, Any], base: Mapping[str, Any]
) -> list[tuple[Path, str]]:
    """Take out of `kept`, the allowed part of `tree`, what rests on its refused agents; the keys, each with such a name.

    An agent with a program of its own is nothing without it, and one with candidates nothing without any of them.
    """
    others = _tables(base)
    agents = _tables(kept)
    lost = {name for name, agent in _tables(tree).items() if name not in others and not _is_left(name, agent, agents)}
    taken: list[tuple[Path, str]] = []
    for name in lost:
        _remove(kept, ("agents", name))
    while found := next(
        ((name, one) for name in _tables(kept) if (one := _lost(kept, name, "candidates", lost))), None
    ):
        name, candidate = found
        taken.append((("agents", name, "candidates"), candidate))
        if name in others:
            _remove(kept, ("agents", name, "candidates"))
            _remove(kept, ("agents", name, "on"))
        else:
            _remove(kept, ("agents", name))
            lost.add(name)
    for name in list(_tables(kept)):
        if subagent := _lost(kept, name, "subagents", lost):
            taken.append((("agents", name, "subagents"), subagent))
            _remove(kept, ("agents", name, "subagents"))
    review = kept.get("review")
    if isinstance(review, Mapping) and (agent := review.get("agent")) in lost:
        taken.append((("review", "agent"), str(agent)))
        _remove(kept, ("review", "agent"))
    return taken


def _is_left(name: str, agent: Any, kept: Mapping[str, Any]) -> bool:
    return name in kept and not (isinstance(agent, Mapping) and agent.get("command") is not None)


def _lost(kept: Mapping[str, Any], name: str, key: str, lost: set[str]) -> str | None:
    """The first of the agents named under a key of an agent that is lost."""
    agent = _tables(kept)[name]
    named = agent.get(key) if isinstance(agent, Mapping) else None
    return next((one for one in named if one in lost), None) if isinstance(named, list) else None


def _tables(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    agents = tree.get("agents")
    return agents if isinstance(agents, Mapping) else {}


def _remove(tree: dict[str, Any], path: tuple[str, ...]) -> None:
    """Take a key out, and the tables that it leaves empty."""
    inner = tree.get(path[0])
    if len(path) == 1 or not isinstance(inner, dict):
        tree.pop(path[0], None)
        return
    _remove(inner, path[1:])
    if not inner:
        del tree[path[0]]
