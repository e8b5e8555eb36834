"""What the client said about itself at `initialize`: what it can do, what it asked for, and its folders.

Read once and leniently, as plain JSON: what is of a wrong type is left out and, where somebody wrote it, named, since
nothing of it may stop the server. Imports nothing heavy, since the answer to `initialize` waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from outpost_lsp.protocol.names import ENCODINGS, Encoding
from outpost_lsp.protocol.uris import uri_of

EventLevel = Literal["off", "summary", "all"]
_MODEL_TAG: Final = 1


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

    capabilities: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def value(self, name: str) -> Any:
        """The capability at a dotted path; `None` when it is not there."""
        found: Any = self.capabilities
        for part in name.split("."):
            if not isinstance(found, Mapping):
                return None
            found = found.get(part)
        return found

    def can(self, name: str) -> bool:
        """Whether the boolean capability at a dotted path is there and true."""
        return self.value(name) is True

    def listed(self, name: str) -> list[Any]:
        """The list at a dotted path; empty when there is none."""
        found = self.value(name)
        return found if isinstance(found, list) else []

    @property
    def encoding(self) -> Encoding:
        """The position encoding: the client's first choice among those known, else UTF-16."""
        for offered in self.listed("general.positionEncodings"):
            for encoding in ENCODINGS:
                if encoding == offered:
                    return encoding
        return "utf-16"

    @property
    def knows_code_action_literals(self) -> bool:
        """Whether it takes code actions, not only commands."""
        return self.value("textDocument.codeAction.codeActionLiteralSupport") is not None

    @property
    def knows_virtual_documents(self) -> bool:
        """Whether it asks for the text of documents that are no files."""
        return self.value("workspace.textDocumentContent") is not None

    @property
    def resource_operations(self) -> frozenset[str]:
        """What it can do to files in an edit: `create`, `rename`, `delete`."""
        if not self.can("workspace.workspaceEdit.documentChanges"):
            return frozenset()
        return frozenset(
            kind for kind in self.listed("workspace.workspaceEdit.resourceOperations") if type(kind) is str
        )

    @property
    def knows_model_tag(self) -> bool:
        """Whether a code action can be marked as written by a model."""
        return _MODEL_TAG in self.listed("textDocument.codeAction.tagSupport.valueSet")

    @property
    def hover_markup(self) -> Literal["markdown", "plaintext"]:
        """The markup it likes best in a hover."""
        formats = self.listed("textDocument.hover.contentFormat")
        return "plaintext" if formats and formats[0] == "plaintext" else "markdown"


@dataclass(frozen=True, slots=True)
class Session:
    """Everything that `initialize` brought."""

    client: Client = field(default_factory=Client)
    options: Options = field(default_factory=Options)
    folders: tuple[str, ...] = ()
    process_id: int | None = None


def read_session(params: Any) -> Session:
    """The session that the parameters of `initialize` begin."""
    given = params if isinstance(params, Mapping) else {}
    capabilities, info, process_id = given.get("capabilities"), given.get("clientInfo"), given.get("processId")
    name = info.get("name") if isinstance(info, Mapping) else None
    return Session(
        Client(capabilities if isinstance(capabilities, Mapping) else {}, name if isinstance(name, str) else ""),
        read_options(given.get("initializationOptions")),
        tuple(_folders(given)),
        process_id if type(process_id) is int else None,
    )


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


def _folders(params: Mapping[str, Any]) -> list[str]:
    folders = params.get("workspaceFolders")
    if isinstance(folders, list) and folders:
        uris = [folder.get("uri") for folder in folders if isinstance(folder, Mapping)]
        return [uri for uri in uris if isinstance(uri, str)]
    if isinstance(params.get("rootUri"), str):
        return [params["rootUri"]]
    if isinstance(params.get("rootPath"), str):
        return [uri_of(Path(params["rootPath"]).absolute())]
    return []


def _is_trust(given: Any) -> bool:
    return isinstance(given, bool) or (isinstance(given, list) and all(isinstance(uri, str) for uri in given))


_TESTS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "settings": ("an object", lambda given: isinstance(given, Mapping)),
    "trusted": ("a boolean or a list of folder URIs", _is_trust),
    "events": ('"off", "summary" or "all"', lambda given: given in ("off", "summary", "all")),
    "secrets": ("a boolean", lambda given: isinstance(given, bool)),
    "token": ("a string", lambda given: isinstance(given, str)),
}
