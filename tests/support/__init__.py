"""Real counterparts for tests: loopback services that say what a test tells them to."""
