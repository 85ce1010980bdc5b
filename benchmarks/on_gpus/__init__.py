"""Benchmarks of GPUs: what codec.py, allreduce.py and training_step.py do with --device cuda."""
