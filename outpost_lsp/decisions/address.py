"""Which base URLs a decision service may have (SYS-01, SEC-17).

A key must not travel in the clear, and a URL must hold nothing secret itself. A refusal never quotes the URL.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Final
from urllib.parse import urlsplit

from outpost_lsp.errors import OutpostError, configuration

_VERSION: Final = re.compile(r"/v[0-9][0-9A-Za-z._-]*\Z", re.IGNORECASE)


def check_base_url(base_url: Any) -> str:
    """The base without trailing slashes; `configuration` unless it is a plain absolute HTTP(S) URL (SYS-01, SEC-17)."""
    if not isinstance(base_url, str) or not base_url.strip():
        raise _url_fault("an absolute http or https URL is expected")
    if any(mark.isspace() or not mark.isprintable() or mark == "\\" for mark in base_url):
        raise _url_fault("it holds a space, a backslash or a control character")
    if "?" in base_url or "#" in base_url:
        raise _url_fault("it must have no query and no fragment")
    try:
        parts = urlsplit(base_url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        raise _url_fault("its host or port cannot be read") from None
    if parts.scheme not in ("http", "https") or not host or "://" not in base_url:
        raise _url_fault("an absolute http or https URL is expected")
    if "@" in parts.netloc:
        raise _url_fault("it must hold no user name and no password")
    if parts.scheme == "http" and not _is_loopback(host):
        raise _url_fault("plain http is for loopback hosts only; use https")
    return base_url.rstrip("/")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def names_version(base: str) -> bool:
    """Whether a base ends in a version prefix such as ``/v1``."""
    return _VERSION.search(base) is not None


def _url_fault(what: str) -> OutpostError:
    # The URL is not quoted: a refused one may hold a password.
    return configuration(f"SystemOneDecisionProvider: base_url: {what}")
