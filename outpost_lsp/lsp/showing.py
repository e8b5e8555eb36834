"""Showing a run's report or patch in the editor, by `window/showDocument`.

A client that knows virtual documents is shown one; any other is shown a file with the same text, in the user's cache
folder, of which a few of the latest are kept.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from outpost_lsp.lsp.protocol import RequestFault
from outpost_lsp.lsp.virtual import virtual_text
from outpost_lsp.protocol.names import DOCUMENT_SCHEME
from outpost_lsp.protocol.uris import uri_of
from outpost_lsp.storage.private_files import private_folder, replace_private

if TYPE_CHECKING:
    from outpost_lsp.domain.run import Run
    from outpost_lsp.lsp.desk import Desk
    from outpost_lsp.lsp.server import OutpostServer
    from outpost_lsp.service.workspace import Workspace

logger = logging.getLogger(__name__)

DocumentName = Literal["report.md", "changes.patch"]
_PATIENCE_S: Final = 30.0
_KEPT: Final = 20


async def show_document(server: OutpostServer, desk: Desk, workspace: Workspace, run: Run, name: DocumentName) -> bool:
    """Whether the editor shows the document now; `False` also where it cannot show any."""
    client = server.client
    if not client.can("window.showDocument.support"):
        return False
    uri = f"{DOCUMENT_SCHEME}:/runs/{run.id}/{name}"
    if not client.knows_virtual_documents:
        text = await virtual_text(desk, uri)
        folder = workspace.layout.cache / "shown"
        uri = uri_of(await asyncio.to_thread(_write, folder, f"{run.id}-{name}", text))
    try:
        asked = {"uri": uri, "external": False, "takeFocus": True}
        answer = await server.protocol.ask("window/showDocument", asked, _PATIENCE_S)
    except (RequestFault, TimeoutError) as error:
        logger.info("the client did not show %s: %s", name, error)
        return False
    return isinstance(answer, dict) and answer.get("success") is True


def _write(folder: Path, name: str, text: str) -> Path:
    private_folder(folder)
    file = folder / name
    replace_private(file, text.encode("utf-8", "surrogatepass"))
    for old in sorted(path for path in folder.iterdir() if path != file)[: -(_KEPT - 1)]:
        old.unlink(missing_ok=True)
    return file
