"""The tests of ranks/ and ddp_ranks/ are collected in ranks only, and each reports how its session ended."""

from rank_reports import collect_ignore_glob, pytest_sessionfinish

__all__ = ["collect_ignore_glob", "pytest_sessionfinish"]
