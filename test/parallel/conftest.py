"""What is in ranks/ and ddp_ranks/ is collected in ranks only, and each says how its session ended."""

from rank_reports import collect_ignore_glob, pytest_sessionfinish

__all__ = ["collect_ignore_glob", "pytest_sessionfinish"]
