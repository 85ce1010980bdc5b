"""What every framework face shares: life cycle, process sets, exceptions, the NumPy codecs.

Imports no framework.
"""
