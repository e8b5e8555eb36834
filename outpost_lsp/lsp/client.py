"""What the client said about itself at `initialize`: what it can do, and what it asked for.

Read once, leniently: an option of a wrong type is left out and named, since nothing of it may stop the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lsprotocol import types
from pygls.capabilities import ServerCapabilitiesBuilder, get_capability

from outpost_lsp.protocol.names import ENCODINGS, Encoding

EventLevel = Literal["off", "summary", "all"]


@dataclass(frozen=True, slots=True)
class Options:
    """The `initializationOptions`, as far as they can be used; `faults` says what cannot."""

    settings: Mapping[str, Any] | None = None
    trusted: bool | frozenset[str] | None = None
    events: EventLevel | None = None
    secrets: bool = False
    token: str | None = None
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Client:
    """The client's abilities that the server asks about."""

    capabilities: types.ClientCapabilities = field(default_factory=types.ClientCapabilities)
    name: str = ""

    def can(self, name: str) -> bool:
        """Whether a boolean capability, named by its snake_case path, is there and true."""
        return get_capability(self.capabilities, name) is True

    @property
    def encoding(self) -> Encoding:
        """The position encoding: the client's first choice among those known, else UTF-16."""
        found = ServerCapabilitiesBuilder.choose_position_encoding(self.capabilities)
        chosen = str(getattr(found, "value", found))
        return next((encoding for encoding in ENCODINGS if encoding == chosen), "utf-16")

    @property
    def knows_code_action_literals(self) -> bool:
        """Whether it takes code actions, not only commands."""
        return get_capability(self.capabilities, "text_document.code_action.code_action_literal_support") is not None

    @property
    def resource_operations(self) -> frozenset[str]:
        """What it can do to files in an edit: `create`, `rename`, `delete`."""
        known = get_capability(self.capabilities, "workspace.workspace_edit.resource_operations")
        if not known or not self.can("workspace.workspace_edit.document_changes"):
            return frozenset()
        return frozenset(str(getattr(kind, "value", kind)) for kind in known)

    @property
    def knows_model_tag(self) -> bool:
        """Whether a code action can be marked as written by a model."""
        tags = get_capability(self.capabilities, "text_document.code_action.tag_support.value_set")
        return tags is not None and types.CodeActionTag.LlmGenerated in tags

    @property
    def hover_markup(self) -> str:
        """The markup it likes best in a hover."""
        formats = get_capability(self.capabilities, "text_document.hover.content_format")
        return str(getattr(formats[0], "value", formats[0])) if formats else "markdown"


def read_options(value: Any) -> Options:
    """The usable part of `initializationOptions`."""
    if value is None:
        return Options()
    if not isinstance(value, Mapping):
        return Options(faults=("initializationOptions: an object is expected",))
    known: dict[str, Any] = {}
    faults = []
    for name, (expected, is_usable) in _TESTS.items():
        given = value.get(name)
        if given is None:
            continue
        if is_usable(given):
            known[name] = given
        else:
            faults.append(f"initializationOptions.{name}: {expected} is expected")
    trusted = known.get("trusted")
    if isinstance(trusted, list):
        known["trusted"] = frozenset(trusted)
    return Options(**known, faults=tuple(faults))


def _is_trust(given: Any) -> bool:
    return isinstance(given, bool) or (isinstance(given, list) and all(isinstance(uri, str) for uri in given))


_TESTS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "settings": ("an object", lambda given: isinstance(given, Mapping)),
    "trusted": ("a boolean or a list of folder URIs", _is_trust),
    "events": ('"off", "summary" or "all"', lambda given: given in ("off", "summary", "all")),
    "secrets": ("a boolean", lambda given: isinstance(given, bool)),
    "token": ("a string", lambda given: isinstance(given, str)),
}
