"""A peer: openai-agents, in an environment of its own."""

from __future__ import annotations

import timing


async def make(base_url: str) -> timing.Run:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{base_url}/v1", api_key="key")

    @function_tool
    def read_file(path: str) -> str:
        """Read a file."""
        return timing.FILE_TEXT

    async def carry(agent: Agent, prompt: str) -> str:
        running = Runner.run_streamed(agent, prompt, max_turns=1000)
        async for _ in running.stream_events():
            pass
        return str(running.final_output)

    def agent(model: str, *more: object) -> Agent:
        return Agent(
            name="benchmark",
            instructions="You are a benchmark.",
            model=OpenAIChatCompletionsModel(model, client),
            tools=[read_file, *more],
        )

    @function_tool
    async def delegate(prompt: str) -> str:
        """Hand a task on."""
        return await carry(child, prompt)

    child = agent("steps-1")

    async def run(model: str) -> str:
        return await carry(agent(model, delegate), "go")

    return run


if __name__ == "__main__":
    timing.main(make)
