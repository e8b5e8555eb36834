"""From files, settings and environment to agents, providers and routings."""
