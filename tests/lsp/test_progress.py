"""The progress of runs in the editor: one token, one beginning, one end."""

from __future__ import annotations

from typing import Any, cast

from outpost_lsp.lsp.client import Client
from outpost_lsp.lsp.progress import ProgressBoard
from outpost_lsp.lsp.protocol import OutpostProtocol


class Spoken:
    """A protocol and a client that keep what is sent, and can show no progress that the server begins."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, str]] = []

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.sent.append((params["token"], params["value"]["kind"]))

    def can(self, capability: str) -> bool:
        return False


def test_a_run_that_another_began_does_not_begin_its_token_again() -> None:
    spoken = Spoken()
    board = ProgressBoard(cast("OutpostProtocol", spoken), cast("Client", spoken), lambda run_id: None)
    board.open("fix", "token", "Fix", "queued")
    board.open("review of the fix", "token", "Review again", "queued")
    board.close("review of the fix", "done")
    board.close("fix", "done")
    assert spoken.sent == [("token", "begin"), ("token", "end")]
