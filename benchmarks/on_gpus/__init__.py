"""Benchmarks of GPUs: the parts of codec.py, allreduce.py and training_step.py for --device cuda."""
