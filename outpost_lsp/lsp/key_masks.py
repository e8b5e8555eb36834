"""No key of a service leaves: not in the log, not in what the client is sent, whoever wrote the text (SEC-16)."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from outpost_lsp.config.masking import KeyFilter, masked
from outpost_lsp.lsp.client_log import ClientLog

if TYPE_CHECKING:
    from outpost_lsp.config.providers import Services
    from outpost_lsp.lsp.protocol import OutpostProtocol
    from outpost_lsp.service.outpost import Outpost


class KeyMasks:
    """The keys that are known now, as patterns. Looked up once a second, since every message asks."""

    def __init__(self, outpost: Outpost) -> None:
        self._outpost = outpost
        self._of: tuple[Services, ...] = ()
        self._patterns: Sequence[re.Pattern[str]] = ()
        self._until = 0.0

    def patterns(self) -> Sequence[re.Pattern[str]]:
        """What finds the keys of all services."""
        services = tuple(workspace.services for workspace in self._outpost.workspaces)
        now = time.monotonic()
        if now > self._until or services != self._of:
            known = dict.fromkeys(pattern for one in services for pattern in one.masks())
            self._of, self._patterns, self._until = services, tuple(known), now + 1.0
        return self._patterns

    def install(self, protocol: OutpostProtocol) -> Callable[[], None]:
        """Mask what is logged and sent from now on, and show warnings in the client's log; the result ends that."""
        protocol.mask = lambda text: masked(text, self.patterns())
        key_filter = KeyFilter(self.patterns)
        for handler in logging.getLogger().handlers:
            handler.addFilter(key_filter)
        log = ClientLog(protocol)
        log.addFilter(key_filter)
        ours = logging.getLogger("outpost_lsp")
        ours.addHandler(log)
        return lambda: ours.removeHandler(log)
