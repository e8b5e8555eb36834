"""Every command of the protocol: from a checked argument through the service to a JSON object.

The border where faults become JSON-RPC errors: what names nothing is `-32602` and names the field, what failed is
`-32803` with the fault's code (section 3 of the protocol). A run that ends badly is a result like any other.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from outpost_lsp.errors import OutpostError
from outpost_lsp.lsp.protocol import INVALID_PARAMS, REQUEST_FAILED, RequestFault
from outpost_lsp.lsp.short_details import short_details
from outpost_lsp.protocol import commands as shapes

if TYPE_CHECKING:
    from outpost_lsp.lsp.desk import Desk
    from outpost_lsp.lsp.progress import Token

logger = logging.getLogger(__name__)

Result = dict[str, Any]
Handler = Callable[["Desk", Any, "Token | None"], Result | Awaitable[Result]]

_FIELDS: Final = {"paths": "uri", "run": "runId", "finding": "findingId"}
"""What a field of the service is called in a command's argument."""


def execute(desk: Desk, name: str, arguments: Any, token: Token | None) -> Result | Awaitable[Result]:
    """Carry a command out; what can be answered at once is."""
    handler = _handlers().get(name)
    if handler is None:
        raise RequestFault(INVALID_PARAMS, f"command: there is no command {name!r}")
    try:
        params = shapes.parse(name, arguments)
        fields = frozenset(field.alias or key for key, field in type(params).model_fields.items())
    except shapes.ArgumentsError as error:
        raise RequestFault(INVALID_PARAMS, str(error)) from None
    try:
        result = handler(desk, params, token)
    except OutpostError as error:
        raise fault_of(error, fields) from error
    if isinstance(result, dict):
        return result
    return translated(result, fields)


async def translated(work: Awaitable[Result], fields: frozenset[str] = frozenset()) -> Result:
    """What `work` gives, its faults as errors of the protocol."""
    try:
        return await work
    except OutpostError as error:
        raise fault_of(error, fields) from error


def when_ready(work: Callable[[Desk, Any], Result]) -> Handler:
    """A command that is answered at once when every workspace is open, and as soon as they are otherwise."""

    def handle(desk: Desk, params: Any, _: Token | None) -> Result | Awaitable[Result]:
        if desk.is_ready:
            return work(desk, params)

        async def wait() -> Result:
            await desk.all_ready()
            return work(desk, params)

        return wait()

    return handle


def fault_of(error: OutpostError, fields: frozenset[str] = frozenset()) -> RequestFault:
    """The JSON-RPC error of a fault: by the argument's field where the fault speaks of one of `fields`."""
    if error.code in ("configuration", "session") and (spoken := _field(error, fields)) is not None:
        name, text = spoken
        return RequestFault(INVALID_PARAMS, f"{name}: {text}")
    data: dict[str, Any] = {"code": error.code, "message": error.message}
    details = short_details(error.details)
    run_id = details.pop("runId", None)
    if details:
        data["details"] = details
    if run_id is not None:
        data["runId"] = run_id
    return RequestFault(REQUEST_FAILED, error.message, data)


def _field(error: OutpostError, fields: frozenset[str]) -> tuple[str, str] | None:
    """The field that a fault speaks of, by its details or its first word, and the rest of its message."""
    word, _, rest = error.message.partition(": ")
    for name in (error.details.get("field"), word, *error.details):
        shown = name if name in fields else _FIELDS.get(str(name))
        if shown in fields:
            return str(shown), rest if word == name else error.message
    return None


@cache
def _handlers() -> dict[str, Handler]:
    from outpost_lsp.lsp import change_commands, finding_commands, run_commands, workspace_commands

    return run_commands.HANDLERS | finding_commands.HANDLERS | change_commands.HANDLERS | workspace_commands.HANDLERS
