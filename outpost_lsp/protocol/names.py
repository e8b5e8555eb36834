"""The names of the editor protocol that a client may rely on.

Importing this module costs nothing, so that the answer to `initialize` can list the names before the models behind them
are loaded; a test holds both together.
"""

from __future__ import annotations

from typing import Final, Literal

PROTOCOL_VERSION: Final = 1

Encoding = Literal["utf-8", "utf-16", "utf-32"]
"""What a position's `character` counts: bytes, UTF-16 units or code points."""

ENCODINGS: Final[tuple[Encoding, ...]] = ("utf-8", "utf-16", "utf-32")

COMMANDS: Final = (
    "outpost.review",
    "outpost.coordinate",
    "outpost.dispatch",
    "outpost.fix",
    "outpost.continue",
    "outpost.cancel",
    "outpost.steer",
    "outpost.runs",
    "outpost.show",
    "outpost.transcript",
    "outpost.diff",
    "outpost.apply",
    "outpost.discard",
    "outpost.reopen",
    "outpost.trust",
    "outpost.worktrees",
    "outpost.findings",
    "outpost.dismiss",
    "outpost.restore",
    "outpost.clear",
    "outpost.replay",
    "outpost.agents",
    "outpost.doctor",
)

NOTIFICATIONS: Final = (
    "$/outpost/run",
    "$/outpost/route",
    "$/outpost/usage",
    "$/outpost/subagent",
    "$/outpost/findings",
    "$/outpost/event",
)

SECRET_REQUEST: Final = "outpost/secret"  # noqa: S105 - the name of a request, not a secret
REVIEW_ACTION_KIND: Final = "source.outpost.review"
DOCUMENT_SCHEME: Final = "outpost"
