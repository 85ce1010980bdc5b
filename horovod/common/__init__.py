"""Shared by every framework face: life cycle, process sets, exceptions, the NumPy codecs.

Imports no framework.
"""
