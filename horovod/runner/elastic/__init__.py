"""Elastic jobs: which hosts there are, which workers run, and who is in which membership; no processes."""
