"""A peer: pydantic-ai, in an environment of its own."""

from __future__ import annotations

from typing import Any

import timing


async def make(base_url: str) -> timing.Run:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from pydantic_ai.usage import UsageLimits

    provider = OpenAIProvider(base_url=f"{base_url}/v1", api_key="key")
    parent: Any = Agent(instructions="You are a benchmark.")
    child: Any = Agent(instructions="You are a benchmark.")

    def read_file(path: str) -> str:
        """Read a file."""
        return timing.FILE_TEXT

    async def delegate(prompt: str) -> str:
        """Hand a task on."""
        return await carry(child, "steps-1", prompt)

    parent.tool_plain(read_file)
    child.tool_plain(read_file)
    parent.tool_plain(delegate)

    async def drain(_context: Any, events: Any) -> None:
        async for _ in events:
            pass

    async def carry(agent: Any, model: str, prompt: str) -> str:
        result = await agent.run(
            prompt,
            model=OpenAIChatModel(model, provider=provider),
            usage_limits=UsageLimits(request_limit=None),
            event_stream_handler=drain,
        )
        return str(result.output)

    async def run(model: str) -> str:
        return await carry(parent, model, "go")

    return run


if __name__ == "__main__":
    timing.main(make)
