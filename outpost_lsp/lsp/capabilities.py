"""What the server says of itself in the answer to `initialize`."""

from __future__ import annotations

from typing import Any, Final

from outpost_lsp import __version__
from outpost_lsp.lsp.client import Client
from outpost_lsp.protocol.names import COMMANDS, DOCUMENT_SCHEME, NOTIFICATIONS, PROTOCOL_VERSION, REVIEW_ACTION_KIND

SERVER_NAME: Final = "outpost-lsp"
_INCREMENTAL: Final = 2


def initialize_result(client: Client) -> dict[str, Any]:
    """The answer to `initialize`."""
    return {
        "capabilities": server_capabilities(client),
        "serverInfo": {"name": SERVER_NAME, "version": __version__},
    }


def server_capabilities(client: Client) -> dict[str, Any]:
    """The capabilities for this client."""
    workspace: dict[str, Any] = {"workspaceFolders": {"supported": True, "changeNotifications": True}}
    if client.knows_virtual_documents:
        workspace["textDocumentContent"] = {"schemes": [DOCUMENT_SCHEME]}
    return {
        "positionEncoding": client.encoding,
        "textDocumentSync": {"openClose": True, "change": _INCREMENTAL, "save": {"includeText": False}},
        "hoverProvider": True,
        "codeLensProvider": {"resolveProvider": False},
        "codeActionProvider": {"codeActionKinds": ["quickfix", REVIEW_ACTION_KIND]}
        if client.knows_code_action_literals
        else True,
        "executeCommandProvider": {"commands": list(COMMANDS), "workDoneProgress": True},
        "workspace": workspace,
        "experimental": {"outpost": {"protocol": PROTOCOL_VERSION, "notifications": list(NOTIFICATIONS)}},
    }
