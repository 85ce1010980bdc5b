"""Shared by all pictures of this project: the colours, and SVG.

Uses the standard library alone, so that the launcher, the lab and scripts may import it.
"""
