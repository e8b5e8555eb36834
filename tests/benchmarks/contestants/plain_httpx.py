"""The floor: a bare loop over httpx that keeps its history as bytes and does nothing else. `ROUTED=1` asks `/route` too."""

from __future__ import annotations

import json
import os

import timing

TOOL = {"name": "read_file", "description": "Read a file.", "parameters": {"type": "object"}}
DELEGATE = {"name": "delegate", "description": "Hand a task on.", "parameters": {"type": "object"}}


async def make(base_url: str) -> timing.Run:
    import httpx

    client = httpx.AsyncClient(timeout=60)
    routed = bool(os.environ.get("ROUTED"))
    tools = json.dumps([{"type": "function", "function": tool} for tool in (TOOL, DELEGATE)]).encode()

    async def ask(model: str, history: list[bytes]) -> tuple[str, list[dict[str, object]]]:
        if routed:
            await client.post(f"{base_url}/route", content=b'{"state":[' + b",".join(history) + b"]}")
        body = b'{"model":"%b","stream":true,"messages":[%b],"tools":%b}' % (model.encode(), b",".join(history), tools)
        text, calls, rest = "", [], b""
        async with client.stream("POST", f"{base_url}/v1/chat/completions", content=body) as response:
            async for chunk in response.aiter_raw():
                *events, rest = (rest + chunk).split(b"\n\n")
                for event in events:
                    data = event.removeprefix(b"data: ")
                    if data == b"[DONE]":
                        continue
                    for choice in json.loads(data)["choices"]:
                        text += choice["delta"].get("content") or ""
                        calls += choice["delta"].get("tool_calls") or []
        return text, calls

    async def run(model: str) -> str:
        history = [b'{"role":"user","content":"go"}']
        while True:
            text, calls = await ask(model, history)
            if not calls:
                return text
            history.append(json.dumps({"role": "assistant", "content": text, "tool_calls": calls}).encode())
            for call in calls:
                name = call["function"]["name"]  # type: ignore[index]
                result = await run("steps-1") if name == "delegate" else timing.FILE_TEXT
                history.append(json.dumps({"role": "tool", "tool_call_id": call["id"], "content": result}).encode())

    return run


if __name__ == "__main__":
    timing.main(make)
