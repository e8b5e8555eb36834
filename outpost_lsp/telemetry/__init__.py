"""Spans of what runs do, for OpenTelemetry. Nothing of it is imported unless somebody asks for spans."""
