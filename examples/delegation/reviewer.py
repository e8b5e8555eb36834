"""An agent that reads files and reports. It has no tool that edits."""

from model import model, model_provider

from outpost_lsp import Agent, Harness, Limits, UsageLimits, file_tools

reviewer = Agent(
    model=model,
    harness=Harness(
        model_provider=model_provider,
        instructions="Inspect files and report findings. Do not edit files.",
        tools=[file_tools()],
        limits=Limits(max_steps=6, usage=UsageLimits(output=2_000)),
    ),
)
