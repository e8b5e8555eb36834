"""The JSON Schemas of the editor protocol, made from its models; what `outpost-lsp schema protocol` prints."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from outpost_lsp.domain.record import Record
from outpost_lsp.protocol.commands import COMMANDS, Params
from outpost_lsp.protocol.names import PROTOCOL_VERSION, SECRET_REQUEST
from outpost_lsp.protocol.notifications import NOTIFICATIONS, SecretParams, SecretResult
from outpost_lsp.protocol.records import Finding, Run, Usage

_RECORDS = (Run, Finding, Usage)


def protocol_schema() -> dict[str, Any]:
    """One JSON Schema document: `commands`, `notifications`, `requests` and `records` by name, shapes under `$defs`."""
    models: list[type[Record] | type[Params]] = [
        *_RECORDS,
        SecretParams,
        SecretResult,
        *(shape.params for shape in COMMANDS.values()),
        *(shape.result for shape in COMMANDS.values()),
        *(shape.params for shape in NOTIFICATIONS.values()),
    ]
    places, definitions = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(models)], by_alias=True, ref_template="#/$defs/{model}"
    )

    def schema_of(model: type) -> Any:
        return places[model, "validation"]

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Outpost editor protocol",
        "version": PROTOCOL_VERSION,
        "commands": {
            name: {
                "description": shape.summary,
                "argument": schema_of(shape.params),
                "result": schema_of(shape.result),
            }
            for name, shape in COMMANDS.items()
        },
        "notifications": {
            name: {"description": shape.when, "params": schema_of(shape.params)}
            for name, shape in NOTIFICATIONS.items()
        },
        "requests": {SECRET_REQUEST: {"params": schema_of(SecretParams), "result": schema_of(SecretResult)}},
        "records": {model.__name__: schema_of(model) for model in _RECORDS},
        "$defs": definitions["$defs"],
    }
