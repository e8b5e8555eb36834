"""What the server says of itself in the answer to `initialize`."""

from __future__ import annotations

from typing import Any

from lsprotocol import types

from outpost_lsp.lsp.client import Client
from outpost_lsp.protocol.names import COMMANDS, DOCUMENT_SCHEME, NOTIFICATIONS, PROTOCOL_VERSION, REVIEW_ACTION_KIND


def server_capabilities(client: Client) -> dict[str, Any]:
    """The capabilities for this client."""
    workspace: dict[str, Any] = {"workspaceFolders": {"supported": True, "changeNotifications": True}}
    if client.capabilities.workspace is not None and client.capabilities.workspace.text_document_content is not None:
        workspace["textDocumentContent"] = {"schemes": [DOCUMENT_SCHEME]}
    return {
        "positionEncoding": client.encoding,
        "textDocumentSync": {
            "openClose": True,
            "change": types.TextDocumentSyncKind.Incremental.value,
            "save": {"includeText": False},
        },
        "hoverProvider": True,
        "codeLensProvider": {"resolveProvider": False},
        "codeActionProvider": {"codeActionKinds": [types.CodeActionKind.QuickFix.value, REVIEW_ACTION_KIND]}
        if client.knows_code_action_literals
        else True,
        "executeCommandProvider": {"commands": list(COMMANDS), "workDoneProgress": True},
        "workspace": workspace,
        "experimental": {"outpost": {"protocol": PROTOCOL_VERSION, "notifications": list(NOTIFICATIONS)}},
    }
