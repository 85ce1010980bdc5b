"""The parts of benchmarks/cluster.py: how jobs start on made hosts, what their ranks do, what is printed."""
