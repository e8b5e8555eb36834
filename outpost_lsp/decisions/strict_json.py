"""Reading the JSON of a service that may send anything.

What is ambiguous is refused instead of guessed: bytes that are no UTF-8, NaN and infinities, a key that stands twice,
half of a surrogate pair. A fault says what is wrong and quotes nothing of the body (ERR-06).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

from outpost_lsp.errors import OutpostError


def read_json(body: bytes, read_number: Callable[[str], float] = float) -> Any:
    """The value that `body` holds; `response` when it is no plain JSON text.

    `read_number` reads the numbers that are no integers.
    """
    try:
        text = body.decode("utf-8")
        # `ValueError` covers bad syntax and a number of thousands of digits alike.
        value = json.loads(text, parse_float=read_number, parse_constant=_no_constant, object_pairs_hook=_object)
    except UnicodeDecodeError:
        raise _invalid("it is not UTF-8") from None
    except RecursionError:
        raise _invalid("it is nested too deeply") from None
    except ValueError:
        raise _invalid("it is not JSON") from None
    if "\\ud" in text or "\\uD" in text:
        _check_pairs(value)
    return value


def without_sign_of_zero(text: str) -> float:
    """A number in which zero has no sign."""
    return float(text) + 0.0


def _no_constant(_name: str) -> NoReturn:
    raise _invalid("it holds a number that is not finite")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _invalid("a key stands twice in one object")
    return found


def _check_pairs(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _invalid("a text holds half of a surrogate pair") from None


def _invalid(what: str) -> OutpostError:
    return OutpostError("response", f"the answer of the decision service cannot be read: {what}")
