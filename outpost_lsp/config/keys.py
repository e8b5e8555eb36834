"""Where the keys of services come from: a variable, a command of the user's own, or the editor's secret storage.

A key is looked up when a request is made. A missing one is a `configuration` fault that names the variable and what to
do, never a request without it. Nothing here logs.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from outpost_lsp.config.schema import Settings
from outpost_lsp.config.services import ProviderSettings
from outpost_lsp.errors import OutpostError, configuration
from outpost_lsp.models.endpoint import KeySource
from outpost_lsp.sandbox.process import run_process

AskClient = Callable[[str], Awaitable[str | None]]
"""Asks the editor's secret storage for the key of the provider with this name."""

_CUSTOMARY: Final[Mapping[str, tuple[str, str]]] = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "anthropic": ("https://api.anthropic.com/v1", "ANTHROPIC_API_KEY"),
}
"""The public service of each kind, and the variable that its users keep the key in."""

_COMMAND_DEADLINE_S: Final = 120.0
_COMMAND_KEPT_S: Final = 300.0


def customary_services() -> Mapping[str, tuple[str, str]]:
    """The address of the public service of each kind, and the variable that its users keep the key in."""
    return _CUSTOMARY


def public_url(kind: str) -> str:
    """The address of the public service of a kind."""
    return _CUSTOMARY[kind][0]


def key_variable(provider: ProviderSettings) -> str:
    """The variable that holds a provider's key; empty for no authentication.

    The customary variable goes to the public service only, so that no other service is sent its key (SEC-17).
    """
    if provider.api_key_env is not None:
        return provider.api_key_env
    address, variable = _CUSTOMARY.get(provider.kind, ("", ""))
    is_public = provider.base_url is None or provider.base_url.rstrip("/") == address
    return variable if is_public else ""


def key_variables(settings: Settings) -> set[str]:
    """Every variable that the settings say holds a key: no child may see them."""
    tokens = {server.bearer_token_variable or "" for server in settings.mcp.values()}
    return (service_key_variables(settings) | tokens) - {""}


def service_key_variables(settings: Settings) -> set[str]:
    """The variables with keys of model services and the like: they go nowhere else, whoever asks by name (SEC-17)."""
    named = {key_variable(provider) for provider in settings.providers.values()}
    named |= {decider.api_key_env for decider in settings.deciders.values()}
    named |= {settings.runs.ray.token_env, settings.telemetry.headers_env}
    named |= {*(variable for _, variable in _CUSTOMARY.values())}
    return named - {""}


def key_values(settings: Settings, environment: Mapping[str, str]) -> Iterator[str]:
    """The keys that are in the environment now, for masking."""
    headers = settings.telemetry.headers_env
    for variable in sorted(key_variables(settings) - {headers}):
        if value := environment.get(variable, "").strip():
            yield value
    for header in environment.get(headers, "").split(","):
        if value := header.partition("=")[2].strip():
            yield value


def provider_key(
    name: str,
    provider: ProviderSettings,
    environment: Mapping[str, str],
    *,
    hidden: Callable[[], set[str]] = set,
    ask_client: AskClient | None = None,
    saw: Callable[[str], None] = lambda _key: None,
) -> KeySource:
    """What gives a provider's key at each request; `None` for a service without authentication.

    `hidden` names the variables that the key command does not see; `saw` is told each key that comes from elsewhere
    than a variable.
    """
    if provider.api_key_command is not None:
        return _PrintedKey(name, provider.api_key_command, environment, hidden, saw)
    variable = key_variable(provider)
    if not variable:
        return None

    async def look_up() -> str:
        found = environment.get(variable, "").strip()
        if not found and ask_client is not None:
            found = (await ask_client(name) or "").strip()
            saw(found)
        if not found:
            storage = ", or save it in the editor's secret storage" if ask_client is not None else ""
            raise configuration(
                f"provider {name}: the key is missing: the environment variable {variable} is not set; set it where "
                f"the server is started{storage}, or name another one with providers.{name}.api_key_env",
                variable=variable,
                provider=name,
            )
        return found

    return look_up


def decider_key(name: str, variable: str, environment: Mapping[str, str]) -> Callable[[], str] | None:
    """What gives a decider's key at each request; `None` for no authentication."""
    if not variable:
        return None

    def look_up() -> str:
        found = environment.get(variable, "").strip()
        if not found:
            raise configuration(
                f"decider {name}: the key is missing: the environment variable {variable} is not set; set it where the "
                f"server is started, or name another one with deciders.{name}.api_key_env",
                variable=variable,
                decider=name,
            )
        return found

    return look_up


class _PrintedKey:
    """A key that a command prints. It is kept for some minutes, since such commands may ask a person."""

    __slots__ = ("_command", "_environment", "_hidden", "_key", "_name", "_saw", "_until")

    def __init__(
        self,
        name: str,
        command: tuple[str, ...],
        environment: Mapping[str, str],
        hidden: Callable[[], set[str]],
        saw: Callable[[str], None],
    ) -> None:
        self._name = name
        self._command = command
        self._environment = environment
        self._hidden = hidden
        self._saw = saw
        self._key = ""
        self._until = 0.0

    def __repr__(self) -> str:
        return f"<key of {self._name} by a command>"

    async def __call__(self) -> str:
        if self._key and time.monotonic() < self._until:
            return self._key
        hidden = self._hidden()
        seen = {name: value for name, value in self._environment.items() if name not in hidden}
        try:
            result = await run_process(self._command, cwd=Path.cwd(), environment=seen, deadline_s=_COMMAND_DEADLINE_S)
        except OutpostError as error:
            if error.code not in ("process", "timeout", "workspace"):
                raise
            raise self._fault("could not be run or did not end") from error
        if result.status != 0:
            raise self._fault(f"ended with status {result.status}")
        key = result.stdout.partition("\n")[0].strip()
        if not key:
            raise self._fault("printed nothing")
        self._saw(key)
        self._key, self._until = key, time.monotonic() + _COMMAND_KEPT_S
        return key

    def _fault(self, what: str) -> OutpostError:
        # What the command printed is not quoted: it may be the key, or part of it.
        return configuration(
            f"provider {self._name}: the key is missing: api_key_command {what}; run {self._command[0]} in a terminal "
            "to see why",
            provider=self._name,
        )
