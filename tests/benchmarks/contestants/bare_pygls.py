"""The floor of a language server in Python: pygls with one hover."""

from __future__ import annotations

from lsprotocol import types
from pygls.lsp.server import LanguageServer

server = LanguageServer("bare", "1")


@server.feature(types.TEXT_DOCUMENT_HOVER)
def hover(_params: types.HoverParams) -> types.Hover:
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, "hover"))


if __name__ == "__main__":
    server.start_io()
