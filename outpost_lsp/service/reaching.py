"""Whether a configured service, or the proxy before it, takes connections at all: the doctor's look at an address.

A connection is made and closed again; nothing is sent over it, so no key and no question leaves this machine.
"""

from __future__ import annotations

from socket import gaierror
from typing import Final
from urllib.parse import urlsplit

import anyio

from outpost_lsp.models.endpoint import is_loopback, proxy_of_the_environment

_PATIENCE_S: Final = 5.0
_PORTS: Final = {"http": 80, "https": 443}


async def why_not_reached(base_url: str, proxy: str) -> str:
    """What kept a connection from being made, and what to look at; empty when one was. `proxy` is the setting."""
    to, remedy = base_url, "check base_url and the network"
    if is_loopback(urlsplit(base_url).hostname or ""):
        remedy = "is it running, and is base_url right?"
    elif proxy:
        to, remedy = proxy, "check `proxy` under [http]"
    elif named := proxy_of_the_environment(base_url):
        to, remedy = named, "check the proxy that HTTPS_PROXY or ALL_PROXY names"
    what = "the proxy" if to != base_url else "it"
    try:
        parts = urlsplit(to)
        host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 443)
    except ValueError:
        return f"{what} cannot be reached: its address is no URL; {remedy}"
    try:
        with anyio.fail_after(_PATIENCE_S):
            stream = await anyio.connect_tcp(host, port)
            await stream.aclose()
    except gaierror:
        return f"{what} cannot be reached: the host name {host} is not known; {remedy}"
    except TimeoutError:
        return f"{what} cannot be reached: no connection to {host}:{port} within {_PATIENCE_S:g} s; {remedy}"
    except OSError as error:
        if isinstance(error.__cause__, gaierror):
            return f"{what} cannot be reached: the host name {host} is not known; {remedy}"
        return f"{what} cannot be reached: nothing takes connections at {host}:{port}; {remedy}"
    return ""
