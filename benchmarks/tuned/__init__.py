"""The parts of benchmarks/autotune.py."""
