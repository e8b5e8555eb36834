"""What first-run set-up adds to the user's own file: services that were found, and nothing in place of what is there.

The text of the file stays byte for byte; a default goes before it and tables after it, so that a person reads their own
words in their own order. What the file names already, by address or key, is not added again. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from outpost_lsp.config.describe import toml_value
from outpost_lsp.config.keys import customary_services
from outpost_lsp.models.local_servers import LocalServer

_FIRST_MODELS: Final[Mapping[str, tuple[str, int | None]]] = {
    "openai": ("gpt-5.5", None),
    "anthropic": ("claude-sonnet-5-5", 8_000),
}
"""The model that is named first for each public service, and the most tokens of its answers where it needs a number."""

HEAD: Final = "# Settings of outpost-lsp. `outpost-lsp config show` prints all of them and where each comes from.\n"
STARTER: Final = (
    HEAD
    + """# Without a model the built-in, rule-based reviewer answers. A model of yours would be, for example:
#
# default_model = "main"
# [providers.service]
# kind = "openai"
# base_url = "https://api.openai.com/v1"
# api_key_env = "OPENAI_API_KEY"
# [models.main]
# provider = "service"
# name = "gpt-5.5"
"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundService:
    """A service with a model that can be used. `variable` holds its key; empty for a server on this machine."""

    name: str
    title: str
    kind: str
    base_url: str
    model: str
    variable: str = ""
    max_output_tokens: int | None = None

    @property
    def is_local(self) -> bool:
        """Whether nothing leaves this machine."""
        return not self.variable


def found_services(environment: Mapping[str, str], local: Iterable[LocalServer]) -> list[FoundService]:
    """What can be used: servers of this machine first, since they cost nothing; then services whose key is there."""
    servers = [
        FoundService(
            name=one.place.name, title=one.place.title, kind="openai", base_url=one.place.base_url, model=one.models[0]
        )
        for one in local
    ]
    hosted = []
    for kind, (address, variable) in customary_services().items():
        if environment.get(variable, "").strip():
            model, most = _FIRST_MODELS[kind]
            title = f"the key in {variable}"
            hosted.append(
                FoundService(
                    name=kind,
                    title=title,
                    kind=kind,
                    base_url=address,
                    model=model,
                    variable=variable,
                    max_output_tokens=most,
                )
            )
    return [*servers, *hosted]


def not_named_yet(tree: Mapping[str, Any], found: Sequence[FoundService]) -> list[FoundService]:
    """Those that the file does not name by their address or their key."""
    providers = [one for one in _table(tree, "providers").values() if isinstance(one, Mapping)]
    addresses = {str(one.get("base_url", "")).rstrip("/").replace("//localhost:", "//127.0.0.1:") for one in providers}
    variables = {str(one.get("api_key_env", "")) for one in providers}
    return [one for one in found if one.base_url not in addresses and (one.is_local or one.variable not in variables)]


def with_services(text: str, tree: Mapping[str, Any], added: Sequence[FoundService]) -> str:
    """The text of the file with the services; the first of them is the default where the file names none."""
    if not added:
        return text
    taken = {*_table(tree, "providers"), *_table(tree, "models")}
    tables: list[str] = []
    names: list[str] = []
    for service in added:
        name = _free(service.name, taken)
        taken.add(name)
        names.append(name)
        tables.append(_tables(name, service))
    before = "" if "default_model" in tree else f"default_model = {toml_value(names[0])}\n"
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    own = text.removeprefix("\ufeff")
    gap = "" if not own or own.endswith("\n") else "\n"
    return mark + before + own + gap + "".join(tables)


def _tables(name: str, service: FoundService) -> str:
    lines = [
        "",
        f"[providers.{name}]",
        f"kind = {toml_value(service.kind)}",
        f"base_url = {toml_value(service.base_url)}",
    ]
    if service.is_local:
        lines.append('api = "chat"')
    lines += [f"api_key_env = {toml_value(service.variable)}", "", f"[models.{name}]", f"provider = {toml_value(name)}"]
    comment = "" if service.is_local else "  # any model of the service"
    lines.append(f"name = {toml_value(service.model)}{comment}")
    if service.max_output_tokens is not None:
        lines.append(f"max_output_tokens = {service.max_output_tokens}")
    return "\n".join(lines) + "\n"


def _free(name: str, taken: set[str]) -> str:
    number = 1
    free = name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def _table(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = tree.get(name)
    return found if isinstance(found, Mapping) else {}
