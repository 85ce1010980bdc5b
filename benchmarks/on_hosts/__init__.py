"""The parts of benchmarks/cluster.py: starting jobs on made hosts, the ranks' work, tables and plots."""
