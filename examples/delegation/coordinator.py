"""An agent that decides when to call the reviewer. Its limits count the reviewer's tokens too."""

from delegation import tools
from model import model, model_provider

from outpost_lsp import Agent, Harness, Limits, UsageLimits

coordinator = Agent(
    model=model,
    harness=Harness(
        model_provider=model_provider,
        tools=tools,
        limits=Limits(max_steps=8, max_delegation_depth=1, usage=UsageLimits(output=5_000)),
    ),
)
