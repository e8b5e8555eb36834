"""The System One wire protocol: a decision service over HTTP (SYS rules).

The provider sends what was declared and hands back what came, read strictly but not judged: `decide` judges it. Its
faults name what a person can do about them, and never hold a key, a state or a body (ERR-06).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, Final, Literal

from outpost_lsp.decisions.address import check_base_url, names_version
from outpost_lsp.decisions.exchange import Exchange
from outpost_lsp.decisions.strict_json import read_json, without_sign_of_zero
from outpost_lsp.domain.decision import DecisionProviderResult, DecisionRequest
from outpost_lsp.domain.lossless import encode_json
from outpost_lsp.errors import OutpostError, configuration

ApiKey = str | Literal[False] | Callable[[], str | None] | None

_LONGEST_TIMEOUT_S: Final = 2_147_483.647
_LARGE_BODY: Final = 256 * 1024


class SystemOneDecisionProvider:
    """A decision service at `base_url`, which includes the version prefix: ``http://127.0.0.1:8000/v1``.

    `api_key`: `None` or `False` for no authentication, a text, or a function that gives the key for each request.
    Plain http is accepted for loopback hosts only. `ca_file` adds certificates to the system's; `proxy` is a URL.
    """

    name = "system-one"

    def __init__(
        self,
        base_url: str,
        api_key: ApiKey = None,
        timeout_s: float = 120,
        max_response_bytes: int = 8 * 1024 * 1024,
        *,
        ca_file: str | None = None,
        proxy: str | None = None,
    ) -> None:
        base = check_base_url(base_url)
        self.endpoint = f"{base}/systemone"
        self.identity = f"{self.name}:{self.endpoint}"
        self._names_version = names_version(base)
        self._key = _key_source(api_key)
        self._exchange = Exchange(
            self.endpoint,
            timeout_s=_checked_timeout(timeout_s),
            max_response_bytes=_checked_size(max_response_bytes),
            ca_file=ca_file,
            proxy=proxy,
            remedy=self._remedy,
        )

    def __repr__(self) -> str:
        return f"SystemOneDecisionProvider({self.endpoint!r})"

    async def request(self, request: DecisionRequest, /) -> DecisionProviderResult:
        """Post the request once and read the answer."""
        body = self._encode(request)
        key = self._key()
        try:
            answer = await self._exchange.post(body, key)
        except OutpostError as error:
            raise self._named(error, request.model) from error.__cause__
        # Reading a large body would hold up everything else that runs on the event loop.
        large = len(answer) > _LARGE_BODY
        native, metadata = await asyncio.to_thread(_read, answer) if large else _read(answer)
        return DecisionProviderResult(
            model=native.get("model"),
            answers=native.get("answers"),
            usage=_usage(native),
            truncated=_truncated(native),
            metadata=metadata,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._exchange.aclose()

    def _encode(self, request: DecisionRequest) -> bytes:
        if isinstance(request.raw_state, list):
            # Some services read a list as a batch of states (DEC-10).
            raise configuration("system-one: state: a list is refused, put it into an object")
        return b"".join(
            (
                b'{"model":',
                encode_json(request.model, "system-one: model"),
                b',"state":',
                request.encoded_state(),
                b',"questions":',
                request.decision.encoded,
                b"}",
            )
        )

    def _remedy(self, status: int) -> str:
        match status:
            case 401 | 403:
                return ": the key is missing or wrong, check api_key"
            case 404 | 405 if not self._names_version:
                return ": base_url must include the version prefix, as in http://127.0.0.1:8000/v1"
            case 404 | 405:
                return ": check base_url, /systemone is added to it"
            case 413:
                return (
                    ': the state or the questions are over its limits; send a reduced state, `state = "focused"` in the '
                    "settings of the routing, or a `state` function of the library"
                )
            case 422:
                return ": it does not accept the questions, the state or the model as they are"
        return ""

    def _named(self, error: OutpostError, model: str) -> OutpostError:
        """The same fault, saying more when the model name is a likely reason."""
        if model == "auto" and error.details.get("status") in (400, 404, 422):
            return OutpostError(
                error.code,
                f"{error.message}; the model 'auto' is known to some services only, others expect 'jev-latest'",
                error.details,
            )
        return error


def _read(answer: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The body as it came, to be judged, and as it is kept.

    A number that nobody judges may come as negative zero (a confidence that laya rounds for its own use does), which
    lossless JSON has no room for; it is kept as zero. In an answer it is refused all the same (DEC-21).
    """
    native = read_json(answer)
    if not isinstance(native, dict):
        raise OutpostError("response", "the decision service gave an invalid answer: an object is expected")
    return native, read_json(answer, without_sign_of_zero) if b"-0" in answer else native


def _key_source(api_key: Any) -> Callable[[], str | None]:
    if api_key is None or api_key is False:
        return lambda: None
    if isinstance(api_key, str):
        key = _checked_key(api_key)
        return lambda: key
    if callable(api_key):
        return lambda: None if (found := api_key()) is None else _checked_key(found)
    raise configuration("SystemOneDecisionProvider: api_key: a text, a function, None or False is expected")


def _checked_key(key: Any) -> str:
    if not isinstance(key, str) or not key.strip():
        raise configuration("SystemOneDecisionProvider: api_key: the key is blank")
    if key != key.strip() or any(not mark.isprintable() for mark in key):
        raise configuration("SystemOneDecisionProvider: api_key: a line end, a control character or a space around it")
    return key


def _checked_timeout(timeout_s: Any) -> float:
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not math.isfinite(timeout_s):
        raise configuration("SystemOneDecisionProvider: timeout_s: a number of seconds is expected")
    if not 0 < timeout_s <= _LONGEST_TIMEOUT_S:
        raise configuration(f"SystemOneDecisionProvider: timeout_s: over 0 and up to {_LONGEST_TIMEOUT_S} is expected")
    return float(timeout_s)


def _checked_size(max_response_bytes: Any) -> int:
    if type(max_response_bytes) is not int or not 0 < max_response_bytes < 2**53:
        raise configuration("SystemOneDecisionProvider: max_response_bytes: a positive integer is expected")
    return max_response_bytes


def _usage(native: dict[str, Any]) -> dict[str, Any] | None:
    """The receipt with our names; absent when the service sent none (SYS-10)."""
    if "usage" not in native:
        return None
    usage = native["usage"]
    if not isinstance(usage, dict):
        raise OutpostError("response", "the decision service gave an invalid answer: usage: an object is expected")
    return {"input": usage.get("input_tokens"), "cached": 0, "output": usage.get("output_tokens")}


def _truncated(native: dict[str, Any]) -> Any:
    """Whether the state was cut; both places together when they disagree, which `decide` refuses (SYS-11)."""
    usage = native.get("usage")
    said = [place["truncated"] for place in (usage, native) if isinstance(place, dict) and "truncated" in place]
    if not said:
        return None
    agreed = all(type(value) is bool and value is said[0] for value in said)
    return said[0] if agreed else said
