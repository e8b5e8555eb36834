"""The door to programs and files: confined paths, process groups, leases."""
