"""Who answers a typed question: decision providers, and the validation of what they answer."""
