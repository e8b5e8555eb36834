"""Tokens of those who send runs. A face knows only their digests, so that none passes through the cluster (SO-10)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection
from typing import Final

from outpost_lsp.errors import configuration

_LEAST: Final = 16


def token_digest(token: str) -> str:
    """What a face knows of a token. `configuration` for one that could be guessed."""
    if len(token) < _LEAST:
        raise configuration(f"a token of the face has fewer than {_LEAST} characters")
    return hashlib.sha256(token.encode()).hexdigest()


def owner_of(token: str, digests: Collection[str]) -> str | None:
    """How the owner of a token is called, the same for all of its jobs; `None` for a token that is not accepted."""
    digest = hashlib.sha256(token.encode()).hexdigest()
    is_known = any(hmac.compare_digest(one, digest) for one in digests)
    return digest[:32] if is_known else None
