"""The reference of the editor protocol as Markdown, made from its models; `docs/protocol.md` is this text.

python -m outpost_lsp.protocol.document > docs/protocol.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from outpost_lsp.protocol import records
from outpost_lsp.protocol.commands import (
    COMMANDS,
    AgentEntry,
    ChangedFile,
    Check,
    Conflict,
    Hunk,
    RaisedLimits,
    UsageCeilings,
    WorktreeEntry,
)
from outpost_lsp.protocol.names import DOCUMENT_SCHEME, PROTOCOL_VERSION, REVIEW_ACTION_KIND, SECRET_REQUEST
from outpost_lsp.protocol.notifications import NOTIFICATIONS, Budget, SecretParams, SecretResult

_INTRODUCTION: Final = f"""\
# The editor protocol, version {PROTOCOL_VERSION}

What `outpost-lsp` speaks with an editor beside the language server protocol itself. Commands make everything reachable
for a bare client without any plug-in; notifications begin with `$/`, which every client may ignore. JSON is camelCase;
fields marked with `?` may be absent. The tables below are made from the models in `outpost_lsp/protocol/`;
`outpost-lsp schema protocol` prints the same as JSON Schema. Names are never changed or dropped within a version.

## Start

`initializationOptions`, all optional:

| field | meaning |
| --- | --- |
| `settings` | an object with the schema of the configuration file; it wins over files |
| `trusted` | whether the folders are trusted: a boolean, or the list of the URIs that are |
| `events` | `"off"`, `"summary"` (default) or `"all"`: which `$/outpost/event` notifications are sent |
| `secrets` | `true`: the client answers `{SECRET_REQUEST}` |
| `token` | what a client over TCP shows; a WebSocket client puts it into the URL (`?token=`) |

The answer has the usual capabilities, and `capabilities.experimental.outpost` = `{{ "protocol": {PROTOCOL_VERSION},
"notifications": [...] }}`. Later settings arrive by `workspace/didChangeConfiguration` (`settings.outpost`, or `settings`
itself) and, where the client supports it, are pulled by `workspace/configuration` with section `outpost`. Invalid
settings never stop the server: the last good ones stay in force, and one `window/showMessage` names the key. Whatever
is asked after a change is answered under the new settings.

The server ends with status 0 after `shutdown` and `exit`, and with 1 after `exit` alone, at the end of its input, and
when the process in `initialize.processId` dies; within two seconds, and runs are cancelled first.
"""

_COMMANDS: Final = """\
## Commands

`workspace/executeCommand` with one JSON object as `arguments[0]`; absent and `null` mean `{}`, a second argument is
refused. Errors:

| code | when |
| --- | --- |
| -32602 | a field is unknown, missing or of another type, or names nothing (a revision, agent, run, finding, conversation, a document outside every folder); the message names the field |
| -32803 | the operation failed; `data` is `{ code, message, details?, runId? }` |
| -32800 | the client cancelled the request |

A command that starts a run answers with `{ run }`: at once in status `queued`, or with `wait` when the run has finished,
however it ended. Progress is reported under the request's `workDoneToken`, or under a token that the server creates.
`$/cancelRequest` on a waiting request, `window/workDoneProgress/cancel` and `outpost.cancel` all cancel the run. Every
notification of a run comes before the `$/outpost/run` that ends it, and that one before the answer of a waiting command.
"""

_EDITOR: Final = f"""\
## In the editor

- Findings are diagnostics: source `outpost`, `code` the finding's slug, `data` = `{{ findingId, runId, stale? }}`, with the
  document's version while it is open. They follow edits; a finding whose text was edited is a hint while at least half
  of the quote is left, and comes back when the text does. One whose suggestion stands in its place, or whose fix by an
  agent was applied, is `fixed` and no diagnostic any more.
- With `review.dismissals` set to `shared` a dismissal stands in `.outpost/dismissals.json` alone: when its entry goes,
  the finding is back for everybody. While that file cannot be read, `outpost.dismiss` answers -32803 and says why.
- Code actions on a finding: apply its suggestion (`quickfix`, preferred), fix it with an agent, dismiss it; also beside it
  when the client names its diagnostic. On any place: review the selection or the file (`{REVIEW_ACTION_KIND}`).
- A code lens on the first line of a file with findings counts them and reviews again; a hover shows their detail.
- Permission questions come one at a time as `window/showMessageRequest` with `Allow once`, `Allow for this run` and `Deny`;
  no answer is a denial.
- Each run ends with exactly one `window/showMessage`.
- `outpost.show` and `outpost.diff` with `open` show the run's report or its patch by `window/showDocument`: as a virtual
  document where the client has those, else as a file in the user's cache folder.
- Virtual documents (`workspace/textDocumentContent`) have the scheme `{DOCUMENT_SCHEME}`: `{DOCUMENT_SCHEME}:/runs/RUN/report.md`,
  `changes.patch`, `before/PATH` and `after/PATH`.
"""

_SHAPES: Final[tuple[type[BaseModel], ...]] = (
    records.Run,
    records.Finding,
    records.Usage,
    records.Scope,
    records.RunError,
    records.Cost,
    records.Changes,
    records.Suggestion,
    records.TextEdit,
    records.Dismissal,
    records.Range,
    records.Position,
    RaisedLimits,
    UsageCeilings,
    ChangedFile,
    Hunk,
    Conflict,
    AgentEntry,
    WorktreeEntry,
    Check,
    Budget,
)


def protocol_markdown() -> str:
    """The whole document."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield _COMMANDS
    for name, shape in COMMANDS.items():
        yield f"### `{name}`\n\n{_sentence(shape.summary)}\n"
        yield from _table(shape.params, "argument")
        yield from _table(shape.result, "result")
    yield "## Notifications, server to client\n"
    for name, notification in NOTIFICATIONS.items():
        yield f"### `{name}`\n\nSent for {notification.when}.\n".replace("Sent for whenever", "Sent whenever")
        yield from _table(notification.params, "field")
    yield f"## Request, server to client\n\n### `{SECRET_REQUEST}`\n"
    yield from _table(SecretParams, "field")
    yield from _table(SecretResult, "result")
    yield _EDITOR
    yield "## Records\n"
    for model in _SHAPES:
        yield f"### {model.__name__}\n\n{(model.__doc__ or '').strip()}\n"
        yield from _table(model, "field")


def _table(model: type[BaseModel], title: str) -> Iterator[str]:
    if not model.model_fields:
        yield f"No {title}.\n"
        return
    yield f"| {title} | type | meaning |\n| --- | --- | --- |"
    for name, field in model.model_fields.items():
        optional = "" if field.is_required() else "?"
        yield f"| `{field.alias or name}{optional}` | {_type(field.annotation)} | {_meaning(field)} |"
    yield ""


def _meaning(field: FieldInfo) -> str:
    parts = [field.description or ""]
    if not field.is_required() and field.default is not None:
        parts.append(f"default {_literal(field.default)}")
    return "; ".join(part for part in parts if part)


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return " ".join(_literal(value) for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join(_type(part) for part in arguments if part is not NoneType)
    if origin is list:
        return f"{_type(arguments[0])}[]"
    if origin is dict:
        return "object"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return {str: "string", int: "integer", float: "number", bool: "boolean"}.get(annotation, "any")


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


if __name__ == "__main__":
    sys.stdout.write(protocol_markdown())
