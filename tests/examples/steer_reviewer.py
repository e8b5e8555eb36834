"""The coordinator of the delegation example, with an instruction for its reviewer sent while it runs."""

import asyncio
from pathlib import Path

from coordinator import coordinator
from model import model_provider

from outpost_lsp import Brief, Steering, dispatch

steering = Steering()
sent = []


def instruct(event):
    if event.kind == "subagent" and event.status == "started":
        sent.append(asyncio.ensure_future(steering.send("Mind the blanks.", subagent=event.id)))
    if event.kind == "steer":
        print("steered", event.subagent_id is not None)


async def main():
    brief = Brief("Have the validation code reviewed, then list its risks.")
    try:
        result = await dispatch(Path.cwd(), coordinator, brief, observe=instruct, steering=steering)
    finally:
        await model_provider.aclose()
    print(sent[0].result().mode)
    print(result.text)


asyncio.run(main())
