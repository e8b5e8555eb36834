"""The loop that carries an agent, and everything around one turn."""
