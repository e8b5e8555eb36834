"""The services that settings name, each made once and shared by all agents, and closed by whoever made them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anyio import to_thread

from outpost_lsp.config.keys import AskClient, decider_key, key_values, key_variables, provider_key, public_url
from outpost_lsp.config.masking import mask_patterns
from outpost_lsp.config.schema import Settings
from outpost_lsp.config.services import DeciderSettings, ProviderSettings
from outpost_lsp.config.tracing import Tracing
from outpost_lsp.decisions.rules import RulesDecisionProvider
from outpost_lsp.decisions.system_one import SystemOneDecisionProvider
from outpost_lsp.domain.decision import DecisionProvider
from outpost_lsp.domain.model import Closable, ModelProvider
from outpost_lsp.errors import configuration
from outpost_lsp.models.anthropic import AnthropicModelProvider
from outpost_lsp.models.openai import OpenAIModelProvider
from outpost_lsp.reviews.offline import OfflineModelProvider


class Services:
    """The providers and deciders of one version of the settings.

    `environment` is looked into at each request, so it may change meanwhile. With `offline` every provider is the
    offline one, and no decider is asked over the network.
    """

    def __init__(
        self,
        settings: Settings,
        environment: Mapping[str, str],
        *,
        offline: bool = False,
        ask_client: AskClient | None = None,
    ) -> None:
        self.settings = settings
        self.environment = environment
        self.offline = offline
        self._ask_client = ask_client
        self._providers: dict[str, ModelProvider] = {}
        self._deciders: dict[tuple[str, str, str], DecisionProvider] = {}
        self._seen_keys: set[str] = set()
        # Whoever says `offline` wants nothing to leave this machine.
        self.tracing = Tracing(settings, environment) if settings.telemetry.enabled and not offline else None
        """What follows runs with spans, when the settings ask for it."""

    def serves(self, settings: Settings) -> bool:
        """Whether these services are the ones that other settings name, too."""
        mine = self.settings
        return all(
            getattr(mine, table) == getattr(settings, table) for table in ("providers", "deciders", "http", "telemetry")
        )

    def provider(self, name: str) -> ModelProvider:
        """The provider under `[providers]`."""
        key = "offline" if self.offline or self.settings.providers[name].kind == "offline" else name
        if key not in self._providers:
            self._providers[key] = self._make_provider(name) if key == name else OfflineModelProvider()
        return self._providers[key]

    def decider(self, name: str, *, cheapest: str, fallback: str) -> DecisionProvider:
        """The decider under `[deciders]`; the table `rules` has to know two of the routing's labels."""
        settings = self.settings.deciders[name]
        key = (name, cheapest, fallback) if settings.kind == "rules" else (name, "", "")
        if key not in self._deciders:
            self._deciders[key] = (
                RulesDecisionProvider(cheapest, fallback)
                if settings.kind == "rules"
                else self._make_decider(name, settings)
            )
        return self._deciders[key]

    def masks(self) -> tuple[re.Pattern[str], ...]:
        """Patterns for the keys that are in the environment now, and those that were looked up elsewhere (SEC-16)."""
        return mask_patterns({*key_values(self.settings, self.environment), *self._seen_keys})

    async def aclose(self) -> None:
        """Close every connection that was opened for them."""
        made: list[Any] = [*self._providers.values(), *self._deciders.values()]
        self._providers.clear()
        self._deciders.clear()
        for service in made:
            if isinstance(service, Closable):
                await service.aclose()
        if self.tracing is not None:
            await to_thread.run_sync(self.tracing.close)

    def _make_provider(self, name: str) -> ModelProvider:
        settings = self.settings.providers[name]
        if settings.kind == "offline":
            return OfflineModelProvider()
        key = provider_key(
            name,
            settings,
            self.environment,
            hidden=lambda: key_variables(self.settings),
            ask_client=self._ask_client,
            saw=self._seen_keys.add,
        )
        if settings.kind == "anthropic":
            if key is None:
                raise configuration(
                    f"provider {name}: a service of this kind needs a key; name its variable with "
                    f"providers.{name}.api_key_env",
                    provider=name,
                )
            return AnthropicModelProvider(
                settings.base_url or public_url("anthropic"), key, name=name, **self._reach(settings)
            )
        return OpenAIModelProvider(
            settings.base_url or public_url("openai"), key, settings.api, name=name, **self._reach(settings)
        )

    def _reach(self, settings: ProviderSettings) -> dict[str, Any]:
        return {"timeout_s": settings.timeout_s, "max_retries": settings.max_retries, **self._network()}

    def _make_decider(self, name: str, settings: DeciderSettings) -> DecisionProvider:
        if settings.base_url is None:
            raise configuration(f"deciders.{name}.base_url: it is needed", decider=name)
        return SystemOneDecisionProvider(
            settings.base_url,
            decider_key(name, settings.api_key_env, self.environment),
            settings.timeout_s,
            **self._network(),
        )

    def _network(self) -> dict[str, Any]:
        http = self.settings.http
        return {"ca_file": str(Path(http.ca_file).expanduser()) if http.ca_file else None, "proxy": http.proxy or None}
