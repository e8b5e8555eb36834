"""What went wrong with a model service, told in words of ours.

One place decides which fault a status, a transport failure or an error sent by the service becomes (HTTP-03, HTTP-05,
ERR-05). What a service writes is used to choose a sentence and is never quoted, so that no key and no text of the
request comes back through it (FAULT-06, SEC-16).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from socket import gaierror
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic_core import from_json

from outpost_lsp.domain.retry_after import retry_after_ms
from outpost_lsp.errors import FaultCode, OutpostError
from outpost_lsp.models.retry import LONGEST_WAIT_S, LastingError, reset_time

if TYPE_CHECKING:
    import httpx

CONTEXT_LENGTH: Final = "context-length"

_UNAVAILABLE_STATUSES = frozenset({408, 500, 502, 503, 504, 529})
_QUOTA_KINDS = frozenset({"rate_limit_error", "rate_limit_exceeded", "insufficient_quota"})
_UNAVAILABLE_KINDS: Mapping[str, str] = {
    "overloaded_error": "Overloaded: the service cannot take more requests now",
    "api_error": "the service failed inside",
    "server_error": "the service failed inside",
}
_CONTEXT_KINDS = frozenset({"context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded"})
_CONTEXT_SENTENCES = (
    "maximum context length",
    "context length exceeded",
    "exceeds the available context size",
    "exceeds the context window",
    "context window exceeds",
    "prompt is too long",
    "input is too long for",
    "input token count exceeds",
    "longer than the context length",
)
_FULL_CONTEXT = (
    "the conversation is longer than the model's maximum context length; give it less at once, or use a larger model"
)
_HINTS: Mapping[int, str] = {
    400: "the service did not accept the request; check the model's name and its settings, and that `api` is what the "
    "service speaks",
    401: "the key was refused; check the key of this provider",
    402: "the service wants to be paid; check the account",
    403: "the key may not be used for this; check the key and what its account may use",
    404: "there is no such path or model; check base_url, `api` and the model's name",
    405: "there is no such path; check base_url and `api`",
    413: _FULL_CONTEXT,
    422: "the service did not accept the request; check the model's name and its settings",
    429: "too many requests, or the quota is used up; try again later, or check the account's plan",
    529: "Overloaded: the service cannot take more requests now",
}
_SPENT = "the quota of the account is used up, and waiting does not bring it back; check its plan"
_LIKE_STATUS: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "model_not_found": 404,
    "not_found_error": 404,
}
"""What services say under status 200, in an error that stands in place of the answer."""
_NO_SUCH_MODEL = ("not found", "not exist", "no such", "unknown model")
_KEY_WORDS = ("api key", "api_key", "unauthorized")


Way = Literal["local", "direct", "proxy", "environment"]
"""How a service is reached: on this machine, through the network, or through the proxy of a setting or a variable."""

_WAYS: Mapping[Way, str] = {
    "local": "base_url",
    "direct": "base_url and the network; where it asks for a proxy, set `proxy` under [http]",
    "proxy": "`proxy` under [http], base_url and the network",
    "environment": "the proxy that HTTPS_PROXY or ALL_PROXY names (NO_PROXY leaves it out), base_url and the network",
}

_OTHER_NAME: Final = (62, 64)
_OTHER_TIME: Final = (9, 10)
"""What OpenSSL's codes say of a certificate: it is another host's or address's, it is not valid yet or not any more."""


class Faults:
    """Makes the faults of one service; each message begins with the provider and names the place."""

    __slots__ = ("name", "url")

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.url = url

    def of_status(self, status: int, retry_after: str | None = None, body: bytes = b"") -> OutpostError:
        """The fault of an answer that is not a success. `body` may say that the context is full or the quota spent."""
        now = datetime.now(UTC)
        details: dict[str, Any] = {"status": status}
        if 300 <= status < 400:
            # Asking again would be redirected again, so the fault is final although another service may do better.
            details["unavailable"] = f"HTTP {status}"
            return self._lasting("provider", f"HTTP {status}", "redirects are not followed; check base_url", details)
        error = error_of(body)
        if status == 413 or (status == 400 and _tells_full_context(error)):
            details["reason"] = CONTEXT_LENGTH
            return self._fault("provider", f"HTTP {status}", _FULL_CONTEXT, details)
        hint = _HINTS.get(
            status, "the service failed; try again later" if status >= 500 else "the service did not accept the request"
        )
        asked_ms = retry_after_ms(retry_after, now)
        if asked_ms is not None:
            details["retryAfterMs"], asked = asked_ms, asked_ms / 1000
            if status == 429 or asked > LONGEST_WAIT_S:
                details["resetAt"] = reset_time(asked, now)
            if asked > LONGEST_WAIT_S:
                hint += f"; try again after {details['resetAt']}"
        if status == 429 and "insufficient_quota" in _kinds_of(error):
            return self._lasting("quota", f"HTTP {status}", _SPENT, details)
        if status in _UNAVAILABLE_STATUSES:
            details["unavailable"] = f"HTTP {status}"
        return self._fault("quota" if status == 429 else "provider", f"HTTP {status}", hint, details)

    def of_error(self, error: Mapping[str, Any]) -> OutpostError:
        """The fault of an error that the service sent in place of an answer or in the middle of one (HTTP-05)."""
        if _tells_full_context(error):
            return self._fault("provider", "the service refused", _FULL_CONTEXT, {"reason": CONTEXT_LENGTH})
        kinds = _kinds_of(error)
        if "insufficient_quota" in kinds:
            return self._lasting("quota", "the service sent an error", _SPENT, {})
        if any(kind in _QUOTA_KINDS for kind in kinds):
            return self._fault("quota", "the service sent an error", _HINTS[429], {})
        for kind in kinds:
            if hint := _UNAVAILABLE_KINDS.get(kind, ""):
                return self._fault("provider", "the service sent an error", hint, {"unavailable": kind})
        status = error.get("code")
        if isinstance(status, int) and 400 <= status < 600:
            # Some gateways hand on the status of the service behind them in the middle of a stream.
            return self.of_status(status)
        like = next((_LIKE_STATUS[kind] for kind in kinds if kind in _LIKE_STATUS), None) or _like_words(error)
        if like is not None:
            return self._fault("provider", "the service sent an error", _HINTS[like], {})
        hint = "of no kind that is known here" if kinds else "in words alone, which are not shown"
        hint += "; check the model's name and that `api` is what the service speaks; the service's own log may say more"
        return self._fault("provider", "the service sent an error", hint, {})

    def of_transport(
        self, error: httpx.HTTPError | httpx.InvalidURL, *, connect_s: float, silence_s: float, way: Way = "direct"
    ) -> OutpostError:
        """The fault of a request that got no whole answer from the network; `way` is how the service is reached."""
        import httpx  # Loaded by whoever made the request; importing it above would cost every start 60 ms.

        if isinstance(error, httpx.ConnectTimeout):
            return self._fault("timeout", f"no connection within {connect_s:g} s", f"check {_WAYS[way]}", {})
        if isinstance(error, httpx.TimeoutException):
            text = f"the service said nothing for {silence_s:g} s"
            return self._fault("timeout", text, "raise `timeout_s` of this provider when its models need longer", {})
        if isinstance(error, httpx.DecodingError):
            return self.malformed("its compressed body is broken")
        cause = _root_of(error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            text = "the certificate was not accepted"
            hint = f"{cause.verify_message.rstrip('.')}; {_remedy_of(cause.verify_code)}"
            return self._lasting("provider", text, hint, {"unavailable": text})
        text, hint = _transport_words(error, cause, way)
        return self._fault("provider", text, hint, {"unavailable": text})

    def cut(self) -> OutpostError:
        """The fault of an answer that ended before it was whole."""
        text = "the answer was cut before its end"
        return self._fault("provider", text, "the connection ended early", {"unavailable": text})

    def malformed(self, what: str) -> OutpostError:
        """The fault of an answer that is not what the service is said to speak."""
        hint = "check base_url and `api` of this provider"
        return self._fault("response", f"the answer cannot be read: {what}", hint, {})

    def empty(self, status: int) -> OutpostError:
        """The fault of an answer without a body, under a status that is a success."""
        hint = "check base_url and `api` of this provider; the service's own log may say why it sends nothing"
        what = f"HTTP {status} came with an empty body, there is no answer in it"
        return self._fault("response", what, hint, {} if status == 200 else {"status": status})

    def too_large(self, what: str, limit: str) -> OutpostError:
        """The fault of an answer beyond a bound (REL-08)."""
        return OutpostError("response", f"{self.name}: {what} of {self.url} is larger than {limit}")

    def _fault(self, code: FaultCode, what: str, hint: str, details: Mapping[str, Any]) -> OutpostError:
        return OutpostError(code, f"{self.name}: {what} ({self.url}): {hint}", details)

    def _lasting(self, code: FaultCode, what: str, hint: str, details: Mapping[str, Any]) -> OutpostError:
        return LastingError(code, f"{self.name}: {what} ({self.url}): {hint}", details)


def error_of(body: bytes) -> Mapping[str, Any]:
    """The error object in the body of a refusal, in whichever of the usual places it stands; empty when there is none."""
    try:
        value = from_json(body)
    except ValueError:
        return {}
    return error_in(value) or (value if isinstance(value, dict) else {})


def error_in(value: Any) -> Mapping[str, Any] | None:
    """The error object of a decoded body or event, `None` when it is no error."""
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if isinstance(error, dict):
        return error
    if isinstance(error, str):
        return {"message": error}
    if value.get("object") == "error" or value.get("type") == "error":
        return value
    return None


def _kinds_of(error: Mapping[str, Any]) -> list[str]:
    return [kind for key in ("code", "type") if isinstance(kind := error.get(key), str)]


def _like_words(error: Mapping[str, Any]) -> int | None:
    """The status that an error in words alone stands for; its class stays that of an unknown error (HTTP-05)."""
    message = error.get("message")
    words = message.lower() if isinstance(message, str) else ""
    if "model" in words and any(part in words for part in _NO_SUCH_MODEL):
        return 404
    return 401 if any(part in words for part in _KEY_WORDS) else None


def _tells_full_context(error: Mapping[str, Any]) -> bool:
    if error.get("code") in _CONTEXT_KINDS or error.get("type") in _CONTEXT_KINDS:
        return True
    message = error.get("message")
    return isinstance(message, str) and any(part in message.lower() for part in _CONTEXT_SENTENCES)


def _root_of(error: BaseException) -> BaseException:
    for _ in range(8):
        if isinstance(error, OSError) or (under := error.__cause__ or error.__context__) is None:
            return error
        error = under
    return error


def _remedy_of(verify_code: int) -> str:
    if verify_code in _OTHER_NAME:
        return "check base_url: whose name or address is in it?"
    if verify_code in _OTHER_TIME:
        return "check the clock of this machine; else the service needs a new one"
    return "for a certificate authority of your own set `ca_file` under [http]"


def _transport_words(error: Exception, cause: BaseException, way: Way) -> tuple[str, str]:
    import httpx  # See above.

    if isinstance(cause, gaierror):
        return "the host name is not known", f"check {_WAYS[way]}"
    if isinstance(error, httpx.ProxyError):
        return "the proxy refused", "check `proxy` under [http], or the proxy variables of the environment"
    if isinstance(cause, ssl.SSLError):
        return "no encrypted connection could be made", "check base_url: does the service speak https there?"
    if isinstance(error, httpx.ConnectError):
        if way == "local":
            return "no connection could be made", "is the service running, and is base_url right?"
        return "no connection could be made", f"is the service running? Check {_WAYS[way]}"
    if isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError):
        return "the connection was cut", "the network or the service ended it"
    return "the request could not be sent", "check base_url and the network"
