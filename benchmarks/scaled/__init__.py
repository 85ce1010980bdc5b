"""The parts of benchmarks/scaling.py: who trains what, where ranks run, what comes out of their times."""
