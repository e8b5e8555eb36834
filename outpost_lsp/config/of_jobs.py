"""The settings of a job that came from another machine: the operator's own, and what a stranger may choose among them.

The invariant: a record is read as an untrusted folder's file is. It says who the agents are; models, routings and the
right to run commands are the operator's to offer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outpost_lsp.config.files import SettingsFile
from outpost_lsp.config.schema import Settings
from outpost_lsp.config.sources import load_settings
from outpost_lsp.domain.job import JobRecord
from outpost_lsp.errors import configuration


def settings_of_job(job: JobRecord, user_file: Path | None, *, can_confine: bool) -> tuple[Settings, tuple[str, ...]]:
    """The settings in force for a job, and a sentence for each thing that it may not say.

    `configuration` for a faulty record, and for a model or a routing that the operator does not offer.
    """
    tree, with_shell = _without_shell(job.settings)
    loaded = load_settings(user_file=user_file, folder=SettingsFile(Path("job"), "workspace", tree))
    if loaded.faults:
        fault = loaded.faults[0]
        raise configuration(f"{fault.key}: {fault.message}" if fault.key else fault.message, worker=True)
    notes = []
    for refused in loaded.refused:
        if refused.key == "default_model" or refused.key.endswith((".model", ".routing")):
            raise configuration(f"{refused.key}: the worker offers no {_at(job.settings, refused.key)!r}", worker=True)
        notes.append(f"The worker does not take {refused.key}: {refused.message}.")
    settings = loaded.settings
    if with_shell and settings.sandbox.shell == "confined" and can_confine:
        agents = {
            name: agent.model_copy(update={"tools": (*agent.tools, "shell")}) if name in with_shell else agent
            for name, agent in settings.agents.items()
        }
        settings = settings.model_copy(update={"agents": agents})
    elif with_shell:
        notes.append('No commands are run: the worker offers no confined shell (sandbox.shell = "confined").')
    return settings, tuple(notes)


def _without_shell(settings: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A record's settings without the tool `shell`, which an operator grants, and the agents that ask for it."""
    agents = dict(settings.get("agents") or {})
    asking = tuple(name for name, agent in agents.items() if "shell" in _tools(agent))
    for name in asking:
        agents[name] = {**agents[name], "tools": [tool for tool in _tools(agents[name]) if tool != "shell"]}
    return {**settings, "agents": agents}, asking


def _tools(agent: Any) -> list[Any]:
    tools = agent.get("tools") if isinstance(agent, Mapping) else None
    return list(tools) if isinstance(tools, list | tuple) else []


def _at(settings: Mapping[str, Any], key: str) -> Any:
    value: Any = settings
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
