"""What tests of the service share: an open service, a project, and settings with a model on loopback."""

from __future__ import annotations

from typing import Any

from tests.support.offices import PATIENCE_S, Office, Open, environment, folders, office, open_office, project, until

__all__ = [
    "PATIENCE_S",
    "Office",
    "Open",
    "environment",
    "folders",
    "loopback",
    "office",
    "open_office",
    "project",
    "until",
]


def loopback(base_url: str, **more: Any) -> dict[str, Any]:
    """Settings with one model on a loopback service."""
    return {
        "defaultModel": "main",
        "providers": {
            "loopback": {"kind": "openai", "baseUrl": base_url, "api": "chat", "apiKeyEnv": "", "maxRetries": 0}
        },
        "models": {"main": {"provider": "loopback", "name": "small"}},
    } | more
