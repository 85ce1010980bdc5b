"""The parts of benchmarks/scaling.py: contenders, places of their ranks, arithmetic, tables and plots."""
