"""Gives an agent both tools. The permissions keep it out of one folder.

OPENAI_API_KEY=... MODEL_NAME=... python examples/custom_tool/run.py
"""

import asyncio
import os
from pathlib import Path

from tools import count_words, owner

from outpost_lsp import Agent, Brief, Harness, OpenAIModelProvider, PermissionRule, Permissions, dispatch

model_provider = OpenAIModelProvider(
    base_url=os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1"),
    api_key=os.environ["OPENAI_API_KEY"],
    api="chat",
)

agent = Agent(
    model=os.environ["MODEL_NAME"],
    harness=Harness(
        model_provider=model_provider,
        tools=[count_words, owner],
        permissions=Permissions([PermissionRule("deny", tools=["find_owner"], paths=["secret/**"])], default="allow"),
    ),
)


def show(event):
    if event.kind == "tool-result":
        print(event.name, "failed:" if event.is_error else "said:", event.preview)


async def main():
    try:
        result = await dispatch(
            Path.cwd(), agent, Brief("How long is the manual, and who owns it?"), observe=show, journal=False
        )
    finally:
        await model_provider.aclose()
    print(result.text)


asyncio.run(main())
