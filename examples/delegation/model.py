"""The model of both agents: any OpenAI-compatible service."""

import os

from outpost_lsp import OpenAIModelProvider

model = os.environ["MODEL_NAME"]

model_provider = OpenAIModelProvider(
    base_url=os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1"),
    api_key=os.environ["OPENAI_API_KEY"],
    api="responses",
)
