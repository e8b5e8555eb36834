"""From `[telemetry]` to something that follows runs with spans. Nothing of OpenTelemetry is imported while it is off."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from outpost_lsp.config.schema import Settings
from outpost_lsp.errors import configuration
from outpost_lsp.models.endpoint import checked_base_url

if TYPE_CHECKING:
    from outpost_lsp.telemetry.export import SpanExport
    from outpost_lsp.telemetry.spans import SpanSink

ENDPOINT_VARIABLE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
EXTRA_MISSING: Final = (
    "no spans are sent: the extra is not installed: pip install 'outpost-lsp[otel]', or set telemetry.enabled = false"
)
_USUAL_ENDPOINT: Final = "http://127.0.0.1:4318"
_NEEDED: Final = ("opentelemetry", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


def has_extra() -> bool:
    """Whether what `[telemetry]` needs is installed."""
    try:
        return all(find_spec(name) is not None for name in _NEEDED)
    except ModuleNotFoundError:
        return False


def collector(settings: Settings, environment: Mapping[str, str]) -> str:
    """The base URL of the collector; `configuration` for one that spans must not be sent to."""
    url = settings.telemetry.endpoint or environment.get(ENDPOINT_VARIABLE, "").strip() or _USUAL_ENDPOINT
    return checked_base_url(url)


class Tracing:
    """The connection to the collector that settings name; opened by the first run that is followed."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._environment = environment
        self._export: SpanExport | None = None

    def sink(self, masks: Sequence[re.Pattern[str]]) -> SpanSink:
        """What follows one run. `configuration` when the extra is missing or the collector's address is none."""
        if not has_extra():
            raise configuration(f"telemetry: {EXTRA_MISSING}")
        from outpost_lsp.telemetry.spans import SpanSink

        settings = self._settings
        if self._export is None:
            self._export = self._open()
        kinds = {model.name: settings.providers[model.provider].kind for model in settings.models.values()}
        return SpanSink(self._export.tracer, content=settings.telemetry.content, providers=kinds, masks=masks)

    def _open(self) -> SpanExport:
        from outpost_lsp.telemetry.export import SpanExport, headers_of

        http, variable = self._settings.http, self._settings.telemetry.headers_env
        return SpanExport(
            collector(self._settings, self._environment),
            headers_of(self._environment.get(variable, "") if variable else ""),
            ca_file=str(Path(http.ca_file).expanduser()) if http.ca_file else None,
            proxy=http.proxy or None,
        )

    def close(self) -> None:
        """Send what waits. It blocks; call it in a thread."""
        if self._export is not None:
            self._export.close()
            self._export = None
