"""Sends the routed agent to the repository in the current folder and shows the route of every step.

OPENAI_API_KEY=... FAST_MODEL=... DEEP_MODEL=... python examples/routing/run.py [--focused] [BRIEF]
"""

import asyncio
import sys
from pathlib import Path

from routed_agent import model_provider, routed_agent
from router import router

from outpost_lsp import Brief, dispatch


def show(event):
    if event.kind == "model-route":
        print("step", event.step, event.choice, event.model.name, event.reason, event.confidence)


async def main():
    words = [word for word in sys.argv[1:] if word != "--focused"]
    try:
        result = await dispatch(
            Path.cwd(),
            routed_agent(focused="--focused" in sys.argv),
            Brief(" ".join(words) or "Find the cause of the failing test and correct it."),
            observe=show,
        )
    finally:
        await model_provider.aclose()
        await router.aclose()
    print(result.text)
    known = "" if result.usage.complete is not False else " at least"
    print(f"{result.usage.input} tokens in, {result.usage.output} tokens out{known}")


asyncio.run(main())
