"""Terms that must be equal on all ranks, and the error if they differ."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from horovod.common.sentences import by_rank
from horovod.torch.ddp import errors

MOST_SAID = 3  # differing terms that an error lists


def terms_as_bytes(terms: Mapping[str, str]) -> bytes:
    return json.dumps(dict(terms)).encode()


def terms_from_bytes(text: bytes) -> dict[str, str]:
    """Parse what terms_as_bytes() returns. RanksDisagree for other bytes, which another build has sent."""
    try:
        terms = json.loads(text)
    except (ValueError, RecursionError):
        terms = None
    if not isinstance(terms, dict) or not all(isinstance(term, str) for term in terms.values()):
        raise errors.no_terms(got=repr(text[:80]))
    return terms


def check_agreement(terms_by_rank: Sequence[Mapping[str, str]]) -> None:
    """Raise RanksDisagree, on all ranks alike, unless all have the same terms in the same order."""
    first = terms_by_rank[0]
    if all(list(terms.items()) == list(first.items()) for terms in terms_by_rank):
        return
    names = list(dict.fromkeys(name for terms in terms_by_rank for name in terms))
    by_term = {name: [terms.get(name) for terms in terms_by_rank] for name in names}
    differing = {name: values for name, values in by_term.items() if len(set(values)) > 1}
    if not differing:
        differing = {"order": [", ".join(terms) for terms in terms_by_rank]}
    said = [f"{name} ({_shown(values)})" for name, values in differing.items()]
    more = [f"and {len(said) - MOST_SAID} more"] if len(said) > MOST_SAID else []
    raise errors.ranks_disagree(said="; ".join(said[:MOST_SAID] + more), terms=differing)


def _shown(values: Sequence[str | None]) -> str:
    return by_rank({rank: "nothing" if value is None else value for rank, value in enumerate(values)})
