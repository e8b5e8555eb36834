"""The service that answers it: any server that speaks System One.

The model "auto" is laya's word; other services expect "jev-latest".
"""

import os

from outpost_lsp import SystemOneDecisionProvider

router_model = os.environ.get("SYSTEM_ONE_MODEL", "auto")

router = SystemOneDecisionProvider(
    base_url=os.environ.get("SYSTEM_ONE_BASE_URL", "http://127.0.0.1:8000/v1"),
    api_key=False,
)
