"""Sends the coordinator to the repository in the current folder.

OPENAI_API_KEY=... MODEL_NAME=... python examples/delegation/run.py
"""

import asyncio
from pathlib import Path

from coordinator import coordinator
from model import model_provider

from outpost_lsp import Brief, dispatch


def show(event):
    if event.kind == "subagent":
        print(event.name, event.status, event.id)


async def main():
    try:
        result = await dispatch(
            Path.cwd(),
            coordinator,
            Brief("Have the validation code reviewed, then list its risks."),
            observe=show,
        )
    finally:
        await model_provider.aclose()
    print(result.text)
    print(result.usage.input, "tokens in,", result.usage.output, "tokens out")


asyncio.run(main())
