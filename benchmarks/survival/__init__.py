"""What benchmarks/autotune.py consists of."""
