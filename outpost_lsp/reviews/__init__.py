"""From a review's scope to a brief, findings and SARIF; the rule-based reviewer."""
