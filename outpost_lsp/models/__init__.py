"""Who answers a prompt: model providers, one service each. The only talkers of HTTP besides decisions/."""
