"""The parts of benchmarks/elastic.py: workers of elastic jobs, and their notes."""
