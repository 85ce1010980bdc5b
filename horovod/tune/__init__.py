"""The autotuner: searches for settings that make steps shorter while a job trains.

See docs/architecture.md.
"""
