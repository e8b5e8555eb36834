"""Where a model service is and how it is reached: the options of a provider, checked once, before any request.

Nothing here holds a key that could be shown: a key that was given as text is kept behind a function, and what is kept
beside it may be logged. Every fault is a `configuration` fault that names the option (SEC-16, SEC-17, HTTP-07).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import urlsplit

from outpost_lsp.errors import OutpostError, configuration

MIB: Final = 1024 * 1024
DEFAULT_MAX_RESPONSE_BYTES: Final = 8 * MIB
DEFAULT_CONNECT_TIMEOUT_S: Final = 10.0

_LONGEST_TIMEOUT_S = (2**31 - 1) / 1000
_DEFAULT_TIMEOUT_S = 120.0
_DEFAULT_THINKING_TIMEOUT_S = 300.0
_LONG_THINKING = frozenset({"high", "xhigh", "max"})

# What a URL may hold here. User information, queries, fragments, blanks, backslashes and non-ASCII hosts have no
# place in it; leaving them out of the alphabet also leaves out every way in which two readers see two hosts.
_URL = re.compile(r"https?://[A-Za-z0-9\-._~:/\[\]%!$&'()*+,;=]+", re.IGNORECASE)
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")

KeySource = str | bool | Callable[[], "str | Awaitable[str]"] | None
"""A key; `False` or `None` for a service without authentication; or what gives the key, asked at each request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A service and the bounds put on talking to it."""

    name: str
    base_url: str
    timeout_s: float | None = None
    connect_timeout_s: float = DEFAULT_CONNECT_TIMEOUT_S
    max_retries: int = 2
    max_response_bytes: int = DEFAULT_MAX_RESPONSE_BYTES
    ca_file: str | None = None
    proxy: str | None = None

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise configuration("name: a provider needs a name")
        object.__setattr__(self, "base_url", checked_base_url(self.base_url))
        if self.timeout_s is not None:
            _check_seconds("timeout_s", self.timeout_s)
        _check_seconds("connect_timeout_s", self.connect_timeout_s)
        _check_whole("max_retries", self.max_retries, least=0)
        _check_whole("max_response_bytes", self.max_response_bytes, least=1)
        object.__setattr__(self, "ca_file", str(self.ca_file) if self.ca_file else None)
        object.__setattr__(self, "proxy", self.proxy or None)

    @property
    def is_loopback(self) -> bool:
        """Whether the service runs on this machine; then no proxy is ever asked."""
        return is_loopback(urlsplit(self.base_url).hostname or "")

    @property
    def is_plain(self) -> bool:
        """Whether the connection is not encrypted."""
        return self.base_url.startswith("http:")

    def silence_s(self, reasoning: str | None) -> float:
        """How long the service may say nothing: longer by default for a model that thinks long."""
        if self.timeout_s is not None:
            return self.timeout_s
        return _DEFAULT_THINKING_TIMEOUT_S if reasoning in _LONG_THINKING else _DEFAULT_TIMEOUT_S


def proxy_of_the_environment(url: str) -> str | None:
    """The proxy that the usual variables name for an address; followed where no setting names one."""
    from urllib.request import getproxies, proxy_bypass  # Not needed by what starts.

    parts = urlsplit(url)
    named = getproxies()
    proxy = named.get(parts.scheme) or named.get("all")
    if not proxy or proxy_bypass(parts.hostname or ""):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def checked_base_url(base_url: str) -> str:
    """The URL without trailing slashes; `configuration` unless it is https, or http to this machine."""
    if not isinstance(base_url, str) or not _URL.fullmatch(base_url):
        raise configuration(
            "base_url: an absolute http or https URL without user name, query and fragment is expected, "
            "such as https://api.example.com/v1"
        )
    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise configuration("base_url: the host or the port is not valid") from error
    if port == 0 or not (_is_address(host) if ":" in host else _HOST.fullmatch(host)):
        raise configuration("base_url: the host or the port is not valid")
    if parts.scheme == "http" and not is_loopback(host):
        raise configuration(
            f"base_url: plain http is accepted for this machine only (localhost, 127.0.0.1, [::1]); use https for {host}"
        )
    shown_host = f"[{host}]" if ":" in host else host
    authority = shown_host if port is None else f"{shown_host}:{port}"
    return f"{parts.scheme}://{authority}{parts.path}".rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether a host name or address certainly means this machine."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


class Key:
    """A key that is looked up at each request and shown nowhere."""

    __slots__ = ("_owner", "_read")

    def __init__(self, owner: str, source: KeySource, *, required: bool) -> None:
        self._owner = owner
        self._read: Callable[[], str | Awaitable[str]] | None
        if source is None or source is False:
            if required:
                raise configuration(f"api_key: the provider {owner} needs a key; it has no service without one")
            self._read = None
        elif isinstance(source, str):
            text = self._checked(source)
            self._read = lambda: text
        elif callable(source):
            self._read = source
        else:
            raise configuration("api_key: a text, False, or a function that returns the key is expected")

    def __repr__(self) -> str:
        return "Key(...)" if self._read is not None else "Key(none)"

    async def __call__(self) -> str | None:
        """The key for one request, `None` when the service wants none."""
        if self._read is None:
            return None
        key = self._read()
        if inspect.isawaitable(key):
            key = await key
        return self._checked(key)

    def _checked(self, key: object) -> str:
        if not isinstance(key, str) or not key.strip():
            raise configuration(f"api_key: the key of the provider {self._owner} is blank")
        if not key.isascii() or not key.isprintable():
            # Neither a line break nor anything else that cannot stand in a header; the key itself is not quoted.
            raise OutpostError(
                "configuration",
                f"api_key: the key of the provider {self._owner} holds a line break or another character "
                "that no key has; copy it again",
            )
        return key.strip()


def _check_seconds(option: str, seconds: object) -> None:
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds <= _LONGEST_TIMEOUT_S:
        return
    raise configuration(f"{option}: a number of seconds above 0 and up to {_LONGEST_TIMEOUT_S:.0f} is expected")


def _check_whole(option: str, number: object, *, least: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < least:
        raise configuration(f"{option}: a whole number from {least} is expected")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
