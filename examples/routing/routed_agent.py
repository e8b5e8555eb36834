"""An agent whose model is chosen anew at each step."""

import os

from focused_routing import focused_routing
from routing import routing

from outpost_lsp import Agent, Harness, OpenAIModelProvider, edit_tools, file_tools

model_provider = OpenAIModelProvider(
    base_url=os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1"),
    api_key=os.environ["OPENAI_API_KEY"],
    api="responses",
)


def routed_agent(focused=False):
    return Agent(
        model=os.environ["DEEP_MODEL"],
        harness=Harness(
            model_provider=model_provider,
            tools=[file_tools(), edit_tools()],
            routing=focused_routing if focused else routing,
        ),
    )
