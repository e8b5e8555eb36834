"""What one table says of another: names that must exist, agents that are of one sort, addresses and prices that fit.

Pure. Each fault is a path and half a sentence; `sources.py` finds the file and line of the path.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from outpost_lsp.config.agents import AgentSettings
from outpost_lsp.config.prices import price_faults
from outpost_lsp.config.schema import Settings
from outpost_lsp.config.services import McpServerSettings, ProviderSettings, RoutingSettings
from outpost_lsp.config.toml_lines import Path as KeyPath
from outpost_lsp.decisions.address import check_base_url as checked_decider_url
from outpost_lsp.errors import OutpostError
from outpost_lsp.models.endpoint import checked_base_url

Fault = tuple[KeyPath, str]

_NO_SUCH = "has no such name"
_LOOP_ONLY = ("model", "instructions", "tools", "routing", "subagents", "permissions", "context", "skills", "mcp")
"""What an agent with a harness has, and a list of candidates has not."""
_EXTERNAL_TOO = ("model", "permissions")
"""What an external agent has of it."""


def cross_faults(settings: Settings) -> list[Fault]:
    """Everything in `settings` that does not fit together."""
    return [
        *_known(("default_model",), settings.default_model, settings.models, "[models]"),
        *_providers(settings),
        *_models(settings),
        *_deciders(settings),
        *(fault for name, routing in settings.routing.items() for fault in _routing(name, routing, settings)),
        *(fault for name, agent in settings.agents.items() for fault in _agent(name, agent, settings)),
        *_delegation_circles(settings),
        *(fault for name, server in settings.mcp.items() for fault in _server(name, server)),
        *_known(("review", "agent"), settings.review.agent, settings.agents, "[agents]"),
        *_executor(settings),
        *_places(settings),
        *price_faults(settings),
        *_collector(settings),
    ]


def _providers(settings: Settings) -> Iterator[Fault]:
    for name, provider in settings.providers.items():
        path: KeyPath = ("providers", name)
        if provider.base_url is not None:
            yield from _address((*path, "base_url"), provider.base_url, checked_base_url)
        if provider.api_key_command is not None and provider.api_key_env:
            yield (*path, "api_key_command"), "either it or api_key_env is expected, not both"
        yield from _unused_by_kind(path, provider)


def _unused_by_kind(path: KeyPath, provider: ProviderSettings) -> Iterator[Fault]:
    given = provider.model_fields_set
    if provider.kind != "openai" and "api" in given:
        yield (*path, "api"), 'only a provider of the kind "openai" has it'
    if provider.kind == "offline":
        for name in ("base_url", "api_key_env", "api_key_command"):
            if name in given:
                yield (*path, name), 'a provider of the kind "offline" asks no service and has none'


def _models(settings: Settings) -> Iterator[Fault]:
    for name, model in settings.models.items():
        path: KeyPath = ("models", name)
        yield from _known((*path, "provider"), model.provider, settings.providers, "[providers]")
        provider = settings.providers.get(model.provider)
        if provider is not None and provider.kind == "anthropic" and model.max_output_tokens is None:
            yield (*path, "max_output_tokens"), "a model of the kind of service anthropic needs it"


def _deciders(settings: Settings) -> Iterator[Fault]:
    for name, decider in settings.deciders.items():
        path: KeyPath = ("deciders", name, "base_url")
        if decider.price is not None and decider.kind == "rules":
            yield ("deciders", name, "price"), 'a decider of the kind "rules" asks no service and has none'
        if decider.base_url is not None and decider.kind == "system-one":
            yield from _address(path, decider.base_url, checked_decider_url)
        elif decider.base_url is not None:
            yield path, 'a decider of the kind "rules" asks no service and has none'
        elif decider.kind == "system-one":
            yield path, 'a decider of the kind "system-one" needs it'


def _routing(name: str, routing: RoutingSettings, settings: Settings) -> Iterator[Fault]:
    path: KeyPath = ("routing", name)
    yield from _known((*path, "decider"), routing.decider, settings.deciders, "[deciders]")
    if not 2 <= len(routing.criteria) <= 255:
        yield (*path, "criteria"), "2 to 255 labels are expected"
    for label in routing.models.keys() - routing.criteria.keys():
        yield (*path, "models", label), "criteria has no such label"
    for label in routing.criteria.keys() - routing.models.keys():
        yield (*path, "criteria", label), "models has no model for this label"
    if routing.fallback not in routing.criteria:
        yield (*path, "fallback"), "criteria has no such label"
    for label, model in routing.models.items():
        yield from _known((*path, "models", label), model, settings.models, "[models]")


def _agent(name: str, agent: AgentSettings, settings: Settings) -> Iterator[Fault]:
    path: KeyPath = ("agents", name)
    if agent.command is not None and agent.candidates is not None:
        yield (*path, "candidates"), "either it or command is expected, not both"
    if (agent.candidates is None) != (agent.on is None):
        yield (*path, "on" if agent.on is None else "candidates"), "candidates and on are needed together"
    if agent.kind != "built-in":
        for field in _LOOP_ONLY:
            if field in agent.model_fields_set and not (agent.kind == "external" and field in _EXTERNAL_TOO):
                yield (
                    (*path, field),
                    f"an agent with {'candidates' if agent.kind == 'candidates' else 'command'} has none",
                )
    yield from _candidates(path, name, agent, settings)
    if agent.kind == "built-in":
        if agent.model is not None:
            yield from _known((*path, "model"), agent.model, settings.models, "[models]")
        yield from _loop(path, agent, settings)


def _loop(path: KeyPath, agent: AgentSettings, settings: Settings) -> Iterator[Fault]:
    if agent.routing is not None:
        yield from _known((*path, "routing"), agent.routing, settings.routing, "[routing]")
        yield from _one_provider(path, agent, settings)
    for number, subagent in enumerate(agent.subagents):
        yield from _known((*path, "subagents", number), subagent, settings.agents, "[agents]")
        if subagent in settings.agents and settings.agents[subagent].kind != "built-in":
            yield (*path, "subagents", number), "a subagent must be an agent with a model of its own"
        if subagent in agent.subagents[:number]:
            yield (*path, "subagents", number), "it is named twice"
    for number, server in enumerate(agent.mcp):
        yield from _known((*path, "mcp", number), server, settings.mcp, "[mcp]")
    if agent.watchdog is not None and agent.watchdog.max_repeats > agent.watchdog.window:
        yield (*path, "watchdog", "max_repeats"), "a number up to window is expected"


def _one_provider(path: KeyPath, agent: AgentSettings, settings: Settings) -> Iterator[Fault]:
    # Only where a routing is used: the built-in one is over two models that may become different services' one by one.
    routing = settings.routing.get(agent.routing or "")
    models = [*routing.models.values()] if routing is not None else []
    providers = sorted({settings.models[model].provider for model in models if model in settings.models})
    if len(providers) > 1:
        yield (
            (*path, "routing"),
            f"all models of a routing need one provider; its models have {' and '.join(providers)}",
        )
        return
    own = settings.models.get(agent.model or "")
    if own is not None and providers and own.provider != providers[0]:
        yield (*path, "model"), f"the models of its routing have the provider {providers[0]}; it needs the same"


def _candidates(path: KeyPath, name: str, agent: AgentSettings, settings: Settings) -> Iterator[Fault]:
    for number, candidate in enumerate(agent.candidates or ()):
        place = (*path, "candidates", number)
        yield from _known(place, candidate, settings.agents, "[agents]")
        if candidate == name or (candidate in settings.agents and settings.agents[candidate].kind == "candidates"):
            yield place, "a candidate must not have candidates itself"
        if candidate in (agent.candidates or ())[:number]:
            yield place, "it is named twice"


def _delegation_circles(settings: Settings) -> Iterator[Fault]:
    def leads_back(start: str, name: str, seen: set[str]) -> bool:
        agent = settings.agents.get(name)
        for subagent in agent.subagents if agent is not None else ():
            if subagent == start:
                return True
            if subagent not in seen:
                seen.add(subagent)
                if leads_back(start, subagent, seen):
                    return True
        return False

    for name in settings.agents:
        if leads_back(name, name, set()):
            yield ("agents", name, "subagents"), "it would call itself"


def _server(name: str, server: McpServerSettings) -> Iterator[Fault]:
    path: KeyPath = ("mcp", name)
    if (server.command is None) == (server.url is None):
        yield path, "either command or url is expected"
    if server.url is not None:
        if not server.url.startswith(("http://", "https://")):
            yield (*path, "url"), "an http or https URL is expected"
        if "@" in server.url.partition("://")[2].partition("/")[0]:
            yield (*path, "url"), "a URL without user name and password is expected"
        for field in ("arguments", "environment", "variables"):
            if getattr(server, field):
                yield (*path, field), "a server with a url has none"
    else:
        for field in ("headers", "bearer_token_variable"):
            if getattr(server, field):
                yield (*path, field), "a server with a command has none"
    if server.bearer_token_variable and any(header.lower() == "authorization" for header in server.headers):
        yield (*path, "headers"), "either an Authorization header or bearer_token_variable is expected, not both"
    yield from _literals(path, server)


def _literals(path: KeyPath, server: McpServerSettings) -> Iterator[Fault]:
    values: list[Fault] = [((*path, "arguments", n), text) for n, text in enumerate(server.arguments)]
    values += [((*path, "environment", key), text) for key, text in server.environment.items()]
    values += [((*path, "headers", key), key + text) for key, text in server.headers.items()]
    for place, text in values:
        if "${" in text or "\0" in text:
            yield place, "a literal value without ${ and NUL is expected"
        elif "headers" in place and ("\n" in text or "\r" in text):
            yield place, "a header without line breaks is expected"


def _executor(settings: Settings) -> Iterator[Fault]:
    ray = settings.runs.ray
    if ray.url:
        yield from _address(("runs", "ray", "url"), ray.url, checked_base_url)
    elif settings.runs.executor == "ray":
        yield ("runs", "ray", "url"), 'it is needed with executor = "ray"'


def _places(settings: Settings) -> Iterator[Fault]:
    # A relative one would mean another place for each way in which the server is started.
    places: list[Fault] = [
        (("http", "ca_file"), settings.http.ca_file),
        (("runs", "ray", "ca_file"), settings.runs.ray.ca_file),
        (("sandbox", "directory"), settings.sandbox.directory),
        *((("sandbox", "readable", number), folder) for number, folder in enumerate(settings.sandbox.readable)),
    ]
    for path, text in places:
        if text and not Path(text.replace("~", "/", 1) if text.startswith("~") else text).is_absolute():
            yield path, "an absolute path is expected; ~ stands for your home folder"
    if settings.http.proxy and not settings.http.proxy.startswith(("http://", "https://")):
        yield ("http", "proxy"), "an http or https URL is expected"


def _collector(settings: Settings) -> Iterator[Fault]:
    if settings.telemetry.endpoint:
        yield from _address(("telemetry", "endpoint"), settings.telemetry.endpoint, checked_base_url)


def names_nothing(text: str) -> bool:
    """Whether a fault is that a name stands for nothing."""
    return f" {_NO_SUCH}" in text


def _known(path: KeyPath, name: str, table: Collection[str], title: str) -> Iterator[Fault]:
    if name not in table:
        near = difflib.get_close_matches(name, list(table), 1, 0.6)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(table)}" if table else ""
        yield path, f"{title} {_NO_SUCH}{hint}"


def _address(path: KeyPath, url: str, check: Callable[[str], str]) -> Iterator[Fault]:
    try:
        check(url)
    except OutpostError as error:
        yield path, error.message.rpartition("base_url: ")[2]
