"""Coding agents inside your editor: the engine as a library.

Everything public is here. Names are loaded when they are first used, so that `import outpost_lsp` costs nothing and
never imports the language server.
"""

from __future__ import annotations

from importlib import import_module

# The name is known to type checkers; importing `typing` for it would be most of what importing this costs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from outpost_lsp.decisions.decide import decide
    from outpost_lsp.decisions.rules import RulesDecisionProvider
    from outpost_lsp.decisions.scripted import ScriptedDecisionProvider
    from outpost_lsp.decisions.system_one import SystemOneDecisionProvider
    from outpost_lsp.dispatches.brief import Brief
    from outpost_lsp.dispatches.cli_agent import CliAgent
    from outpost_lsp.dispatches.diagnosis import Diagnosis, ProbeResult
    from outpost_lsp.dispatches.dispatch import dispatch
    from outpost_lsp.dispatches.fallback import FallbackAgent
    from outpost_lsp.dispatches.observe import ObservationHub
    from outpost_lsp.dispatches.options import Continuation, Journal
    from outpost_lsp.dispatches.recording import ReplayAgent
    from outpost_lsp.dispatches.resolver import AgentConflictResolver
    from outpost_lsp.dispatches.result import DispatchResult, Turn
    from outpost_lsp.dispatches.sandboxing import WorktreeSandboxProvider
    from outpost_lsp.dispatches.shutdown import run
    from outpost_lsp.dispatches.warm import Sandbox, open_sandbox
    from outpost_lsp.dispatches.workspace import Workspace, open_workspace
    from outpost_lsp.dispatches.workspace_sandbox import HostSandboxProvider
    from outpost_lsp.domain.decision import (
        Choice,
        Decision,
        DecisionProviderResult,
        DecisionRequest,
        Noul,
        Score,
    )
    from outpost_lsp.domain.finding import Finding
    from outpost_lsp.domain.message import Message
    from outpost_lsp.domain.model import ModelProvider, ModelRequest, ModelResult, ModelSpec
    from outpost_lsp.domain.permission import PermissionRule, Permissions, Resources
    from outpost_lsp.domain.price import ModelPriceTable, UsageCost, usage_cost
    from outpost_lsp.domain.sandbox import Command, CommandResult
    from outpost_lsp.domain.tool import Tool, ToolContext, ToolOutput, Toolset, tool
    from outpost_lsp.domain.usage import Usage, UsageLimits
    from outpost_lsp.domain.workflow_budget import CostLimit, WorkflowBudget, WorkflowLimits
    from outpost_lsp.errors import OutpostError, quota_fault, recovery_details, unavailable_fault
    from outpost_lsp.harness.agent import DEFAULT, Agent, Harness, Limits, ToolExecution
    from outpost_lsp.harness.context import ContextStrategy, summarize_history, truncate_tool_results
    from outpost_lsp.harness.hooks import Hook, HookInput
    from outpost_lsp.harness.instructions import Instructions, Skill, repository_instructions
    from outpost_lsp.harness.response import JsonResponse, ResponseError, TextResponse
    from outpost_lsp.harness.routing import ModelRouting, RoutingContext, focused_state
    from outpost_lsp.harness.steering import Delivery, Steering
    from outpost_lsp.harness.subagent import Subagent
    from outpost_lsp.harness.watchdog import Intervention, Watchdog
    from outpost_lsp.models.anthropic import AnthropicModelProvider
    from outpost_lsp.models.openai import OpenAIModelProvider
    from outpost_lsp.models.scripted import ScriptedModelProvider
    from outpost_lsp.reviews.offline import OfflineModelProvider
    from outpost_lsp.reviews.review import review
    from outpost_lsp.storage.conversations import ConversationStore
    from outpost_lsp.storage.journal import read_journal
    from outpost_lsp.storage.layout import Layout
    from outpost_lsp.tools.edit import edit_tools
    from outpost_lsp.tools.files import file_tools
    from outpost_lsp.tools.findings import finding_tools
    from outpost_lsp.tools.git import git_tools
    from outpost_lsp.tools.mcp_server import McpServer
    from outpost_lsp.tools.search import search_tools
    from outpost_lsp.tools.shell import shell_tools
    from outpost_lsp.workspaces.policy import BranchPolicy, DiffGuard, LifecycleHooks, StageLimits
    from outpost_lsp.workspaces.record import Commit, Disposal, Integration
    from outpost_lsp.workspaces.resolution import ConflictContext, Resolution

__version__ = "0.1.0"

_HOMES = {
    "decisions.decide": ("decide",),
    "decisions.rules": ("RulesDecisionProvider",),
    "decisions.scripted": ("ScriptedDecisionProvider",),
    "decisions.system_one": ("SystemOneDecisionProvider",),
    "dispatches.brief": ("Brief",),
    "dispatches.cli_agent": ("CliAgent",),
    "dispatches.diagnosis": ("Diagnosis", "ProbeResult"),
    "dispatches.dispatch": ("dispatch",),
    "dispatches.fallback": ("FallbackAgent",),
    "dispatches.observe": ("ObservationHub",),
    "dispatches.options": ("Continuation", "Journal"),
    "dispatches.recording": ("ReplayAgent",),
    "dispatches.resolver": ("AgentConflictResolver",),
    "dispatches.result": ("DispatchResult", "Turn"),
    "dispatches.sandboxing": ("WorktreeSandboxProvider",),
    "dispatches.shutdown": ("run",),
    "dispatches.warm": ("Sandbox", "open_sandbox"),
    "dispatches.workspace": ("Workspace", "open_workspace"),
    "dispatches.workspace_sandbox": ("HostSandboxProvider",),
    "domain.decision": ("Choice", "Decision", "DecisionProviderResult", "DecisionRequest", "Noul", "Score"),
    "domain.finding": ("Finding",),
    "domain.message": ("Message",),
    "domain.model": ("ModelProvider", "ModelRequest", "ModelResult", "ModelSpec"),
    "domain.permission": ("PermissionRule", "Permissions", "Resources"),
    "domain.price": ("ModelPriceTable", "UsageCost", "usage_cost"),
    "domain.sandbox": ("Command", "CommandResult"),
    "domain.tool": ("Tool", "ToolContext", "ToolOutput", "Toolset", "tool"),
    "domain.usage": ("Usage", "UsageLimits"),
    "domain.workflow_budget": ("CostLimit", "WorkflowBudget", "WorkflowLimits"),
    "errors": ("OutpostError", "quota_fault", "recovery_details", "unavailable_fault"),
    "harness.agent": ("Agent", "DEFAULT", "Harness", "Limits", "ToolExecution"),
    "harness.context": ("ContextStrategy", "summarize_history", "truncate_tool_results"),
    "harness.hooks": ("Hook", "HookInput"),
    "harness.instructions": ("Instructions", "Skill", "repository_instructions"),
    "harness.response": ("JsonResponse", "ResponseError", "TextResponse"),
    "harness.routing": ("ModelRouting", "RoutingContext", "focused_state"),
    "harness.steering": ("Delivery", "Steering"),
    "harness.subagent": ("Subagent",),
    "harness.watchdog": ("Intervention", "Watchdog"),
    "models.anthropic": ("AnthropicModelProvider",),
    "models.openai": ("OpenAIModelProvider",),
    "models.scripted": ("ScriptedModelProvider",),
    "reviews.offline": ("OfflineModelProvider",),
    "reviews.review": ("review",),
    "storage.conversations": ("ConversationStore",),
    "storage.journal": ("read_journal",),
    "storage.layout": ("Layout",),
    "tools.edit": ("edit_tools",),
    "tools.files": ("file_tools",),
    "tools.findings": ("finding_tools",),
    "tools.git": ("git_tools",),
    "tools.mcp_server": ("McpServer",),
    "tools.search": ("search_tools",),
    "tools.shell": ("shell_tools",),
    "workspaces.policy": ("BranchPolicy", "DiffGuard", "LifecycleHooks", "StageLimits"),
    "workspaces.record": ("Commit", "Disposal", "Integration"),
    "workspaces.resolution": ("ConflictContext", "Resolution"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "DEFAULT",
    "Agent",
    "AgentConflictResolver",
    "AnthropicModelProvider",
    "BranchPolicy",
    "Brief",
    "Choice",
    "CliAgent",
    "Command",
    "CommandResult",
    "Commit",
    "ConflictContext",
    "ContextStrategy",
    "Continuation",
    "ConversationStore",
    "CostLimit",
    "Decision",
    "DecisionProviderResult",
    "DecisionRequest",
    "Delivery",
    "Diagnosis",
    "DiffGuard",
    "DispatchResult",
    "Disposal",
    "FallbackAgent",
    "Finding",
    "Harness",
    "Hook",
    "HookInput",
    "HostSandboxProvider",
    "Instructions",
    "Integration",
    "Intervention",
    "Journal",
    "JsonResponse",
    "Layout",
    "LifecycleHooks",
    "Limits",
    "McpServer",
    "Message",
    "ModelPriceTable",
    "ModelProvider",
    "ModelRequest",
    "ModelResult",
    "ModelRouting",
    "ModelSpec",
    "Noul",
    "ObservationHub",
    "OfflineModelProvider",
    "OpenAIModelProvider",
    "OutpostError",
    "PermissionRule",
    "Permissions",
    "ProbeResult",
    "ReplayAgent",
    "Resolution",
    "Resources",
    "ResponseError",
    "RoutingContext",
    "RulesDecisionProvider",
    "Sandbox",
    "Score",
    "ScriptedDecisionProvider",
    "ScriptedModelProvider",
    "Skill",
    "StageLimits",
    "Steering",
    "Subagent",
    "SystemOneDecisionProvider",
    "TextResponse",
    "Tool",
    "ToolContext",
    "ToolExecution",
    "ToolOutput",
    "Toolset",
    "Turn",
    "Usage",
    "UsageCost",
    "UsageLimits",
    "Watchdog",
    "WorkflowBudget",
    "WorkflowLimits",
    "Workspace",
    "WorktreeSandboxProvider",
    "__version__",
    "decide",
    "dispatch",
    "edit_tools",
    "file_tools",
    "finding_tools",
    "focused_state",
    "git_tools",
    "open_sandbox",
    "open_workspace",
    "quota_fault",
    "read_journal",
    "recovery_details",
    "repository_instructions",
    "review",
    "run",
    "search_tools",
    "shell_tools",
    "summarize_history",
    "tool",
    "truncate_tool_results",
    "unavailable_fault",
    "usage_cost",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
