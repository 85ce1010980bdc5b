"""Colours and SVG elements for all pictures of this project.

Standard library only, so that the launcher, the lab and scripts may import it.
"""
