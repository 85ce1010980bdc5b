"""Code that all framework faces share: life cycle, process sets, exceptions, the NumPy codecs.

Imports no framework.
"""
