"""What the parameters of each method have to look like, checked before anything is made of them.

The converter behind would take a number for a text and speaks of Python's types where it cannot; whoever writes a client
is told the field in its own spelling and what is expected there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cattrs import transform_error
from lsprotocol import types

from outpost_lsp.protocol.kinds import kind_of


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: its name for a person, and whether a value is one."""

    name: str
    is_one: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Each:
    """A list, and what each of its items has to be."""

    item: Shape


Fields = Mapping[str, "Shape"]
"""An object's fields; one whose name ends in `?` may be absent or `null`."""

Shape = Kind | Each | Fields


def _is_number(value: Any) -> bool:
    # Some clients write whole numbers with a point.
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())


_ANY: Final = Kind("a value", lambda _: True)
_TEXT: Final = Kind("a string", lambda value: isinstance(value, str))
_NUMBER: Final = Kind("a whole number", _is_number)
_LIST: Final = Kind("a list", lambda value: isinstance(value, list))
_OBJECT: Final = Kind("an object", lambda value: isinstance(value, dict))
_TOKEN: Final = Kind("a string or a number", lambda value: isinstance(value, str) or _is_number(value))
_ARGUMENTS: Final = Kind("a list with one object", _LIST.is_one)
_TRACE: Final = Kind("one of off, messages and verbose", lambda value: value in ("off", "messages", "verbose"))

_PLACE: Final[Fields] = {"line": _NUMBER, "character": _NUMBER}
_RANGE: Final[Fields] = {"start": _PLACE, "end": _PLACE}
_DOCUMENT: Final[Fields] = {"uri": _TEXT}
_ASKING: Final[Fields] = {"textDocument": _DOCUMENT, "workDoneToken?": _TOKEN}
_FOLDER: Final[Fields] = {"uri": _TEXT}

_SHAPES: Final[Mapping[str, Fields]] = {
    types.WORKSPACE_EXECUTE_COMMAND: {"command": _TEXT, "arguments?": _ARGUMENTS, "workDoneToken?": _TOKEN},
    types.TEXT_DOCUMENT_HOVER: {**_ASKING, "position": _PLACE},
    types.TEXT_DOCUMENT_CODE_ACTION: {
        **_ASKING,
        "range": _RANGE,
        "context": {"diagnostics": Each({"range": _RANGE}), "only?": Each(_TEXT)},
    },
    types.TEXT_DOCUMENT_CODE_LENS: _ASKING,
    types.WORKSPACE_TEXT_DOCUMENT_CONTENT: {"uri": _TEXT},
    types.TEXT_DOCUMENT_DID_OPEN: {
        "textDocument": {"uri": _TEXT, "languageId": _TEXT, "version": _NUMBER, "text": _TEXT}
    },
    types.TEXT_DOCUMENT_DID_CHANGE: {
        "textDocument": {"uri": _TEXT, "version": _NUMBER},
        "contentChanges": Each({"range?": _RANGE, "text": _TEXT}),
    },
    types.TEXT_DOCUMENT_DID_SAVE: {"textDocument": _DOCUMENT, "text?": _TEXT},
    types.TEXT_DOCUMENT_DID_CLOSE: {"textDocument": _DOCUMENT},
    types.WORKSPACE_DID_CHANGE_CONFIGURATION: {"settings": _ANY},
    types.WORKSPACE_DID_CHANGE_WATCHED_FILES: {"changes": Each({"uri": _TEXT, "type": _NUMBER})},
    types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: {"event": {"added": Each(_FOLDER), "removed": Each(_FOLDER)}},
    types.WINDOW_WORK_DONE_PROGRESS_CANCEL: {"token": _TOKEN},
    types.SET_TRACE: {"value": _TRACE},
}


def faults_of(method: str, params: Any) -> str:
    """What is wrong with the parameters of a method, each fault with its field; empty when they can be used."""
    shape = _SHAPES.get(method)
    if shape is None:
        return ""
    if not isinstance(params, dict):
        *others, last = [name for name in shape if not name.endswith("?")]
        needed = f"{', '.join(others)} and {last}" if others else last
        given = "nothing" if params is None else kind_of(params)
        return f"params: an object with {needed} is expected, and {given} came"
    return "; ".join(_faults(params, shape, ""))


def _faults(value: Any, shape: Shape, place: str) -> list[str]:
    if isinstance(shape, Kind):
        return [] if shape.is_one(value) else [_other(place, shape, value)]
    if isinstance(shape, Each):
        if not isinstance(value, list):
            return [_other(place, _LIST, value)]
        return [fault for number, item in enumerate(value) for fault in _faults(item, shape.item, f"{place}[{number}]")]
    if not isinstance(value, dict):
        return [_other(place, _OBJECT, value)]
    faults = []
    for spelled, inner in shape.items():
        name = spelled.removesuffix("?")
        field = f"{place}.{name}" if place else name
        if value.get(name) is not None or (inner is _ANY and name in value):
            faults += _faults(value[name], inner, field)
        elif name == spelled:
            faults.append(_other(field, inner, None) if name in value else f"{field}: is missing")
    return faults


def _other(place: str, expected: Shape, value: Any) -> str:
    name = expected.name if isinstance(expected, Kind) else "a list" if isinstance(expected, Each) else "an object"
    return f"{place}: {name} is expected, and {kind_of(value)} came"


def converter_faults(error: BaseException) -> str:
    """What the converter disliked, without its words: the fields alone."""
    found = transform_error(error, path="", format_exception=lambda fault, _: _reason(fault)) if error.args else []
    places = [fault.rpartition(" @ ") for fault in found]
    told = [f"{_spelled(place)}: {reason}" if place.strip(".") else reason for reason, _, place in places]
    return "; ".join(told) or "the parameters are not as the protocol has them"


def _reason(fault: BaseException) -> str:
    return "is missing" if isinstance(fault, KeyError) else "is not as the protocol has it"


def _spelled(place: str) -> str:
    first, *others = place.strip(".").split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)
