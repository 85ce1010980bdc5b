"""Algorithms of allreduce. The contents of the cells are simulated, not typed."""

from __future__ import annotations

from diagrams.drawing import LEVELS, SMALL, Drawing

RANKS = 4
CELL_WIDTH, CELL_HEIGHT = 25, 24
Parts = list[list[frozenset[int]]]  # by rank and slice: the ranks whose contributions are in it


def grid(
    drawing: Drawing, x: float, y: float, parts: Parts, arrived: set[tuple[int, int]], title: str
) -> None:
    """Draw ranks by slices: each cell shows the number of contributions in it."""
    drawing.words(x + 14 + 2 * CELL_WIDTH, y - 12, title, size=SMALL)
    for rank in range(RANKS):
        drawing.words(x + 8, y + (rank + 0.5) * CELL_HEIGHT, str(rank), colour="quiet", size=SMALL)
    cells = [(rank, piece) for rank in range(RANKS) for piece in range(RANKS)]
    # Cells that have just arrived come last, so that no neighbour covers their edges.
    for rank, piece in sorted(cells, key=lambda cell: cell in arrived):
        count = len(parts[rank][piece])
        left, top = x + 16 + piece * CELL_WIDTH, y + rank * CELL_HEIGHT
        is_new = (rank, piece) in arrived
        drawing.cell(left, top, CELL_WIDTH, CELL_HEIGHT, str(count), LEVELS[count - 1], marked=is_new)


def beginning() -> Parts:
    return [[frozenset({rank})] * RANKS for rank in range(RANKS)]


def ring_steps() -> list[tuple[Parts, set[tuple[int, int]]]]:
    """The state after each step of a ring allreduce, and the cells that arrived in it."""
    parts, steps = beginning(), []
    for step in range(2 * (RANKS - 1)):
        adds = step < RANKS - 1
        before = [list(row) for row in parts]
        arrived = set()
        for rank in range(RANKS):
            piece = (rank - step) % RANKS if adds else (rank + 1 - (step - RANKS + 1)) % RANKS
            to = (rank + 1) % RANKS
            sent = before[rank][piece]
            parts[to][piece] = sent | before[to][piece] if adds else sent
            arrived.add((to, piece))
        steps.append(([list(row) for row in parts], arrived))
    assert all(len(cell) == RANKS for row in parts for cell in row)
    return steps


def ring() -> Drawing:
    drawing = Drawing(
        "Ring allreduce of four ranks, step by step",
        "Tables of four ranks by four slices; a number says how many ranks' contributions are in a cell. In "
        "each of three steps of the reduce-scatter every rank hands one slice to its neighbour, who adds it. "
        "Then each rank has one complete slice, which goes around in three steps of the allgather.",
        494,
    )
    corners = ((62, 52), (130, 52), (130, 120), (62, 120))
    for rank, (x, y) in enumerate(corners):
        (to_x, to_y) = corners[(rank + 1) % RANKS]
        dx, dy = (to_x - x) / 68, (to_y - y) / 68
        drawing.arrow((x + 12 * dx, y + 12 * dy), (to_x - 12 * dx, to_y - 12 * dy), colour="accent")
    for rank, (x, y) in enumerate(corners):
        drawing.dot(x, y, str(rank), "plain")
    drawing.heading(18, "ring")
    grid(drawing, 226, 44, beginning(), set(), "slices before it begins")
    for half, name in enumerate(("reduce-scatter: add", "allgather: copy")):
        top = 172 + half * 152
        drawing.heading(top, name)
        for column in range(3):
            number = half * 3 + column
            parts, arrived = ring_steps()[number]
            grid(drawing, 6 + column * 131, top + 36, parts, arrived, f"step {number + 1}")
    drawing.words(
        200, 478, "a number: contributions in the slice; orange: has just arrived", colour="quiet", size=SMALL
    )
    return drawing


def scatter_gather() -> Drawing:
    drawing = Drawing(
        "Reduce-scatter and allgather, directly",
        "Four ranks by four slices. First every rank sends slice j straight to rank j, which adds the four "
        "contributions. Then every rank sends its complete slice to all others.",
        222,
    )
    owners = beginning()
    for rank in range(RANKS):
        owners[rank][rank] = frozenset(range(RANKS))
    done = [[frozenset(range(RANKS))] * RANKS for _ in range(RANKS)]
    diagonal = {(rank, rank) for rank in range(RANKS)}
    others = {(rank, piece) for rank in range(RANKS) for piece in range(RANKS)} - diagonal
    states: tuple[tuple[str, Parts, set[tuple[int, int]]], ...] = (
        ("before", beginning(), set()),
        ("after round 1", owners, diagonal),
        ("after round 2", done, others),
    )
    for column, (title, parts, arrived) in enumerate(states):
        grid(drawing, 6 + column * 131, 40, parts, arrived, title)
    drawing.words(136, 162, "1. reduce-scatter:\nslice j to rank j, who adds", size=SMALL)
    drawing.words(306, 162, "2. allgather:\nresults to all", size=SMALL)
    drawing.words(200, 200, "two rounds, whatever the number of ranks", colour="quiet", size=SMALL)
    return drawing


def tree() -> Drawing:
    drawing = Drawing(
        "Tree and recursive doubling of eight ranks",
        "Above: a binomial tree. In three rounds the ranks send their sums towards rank 0, and in three more "
        "it sends the result back along the same branches. Below: recursive doubling. All ranks exchange "
        "their sums with the rank at distance 1, then 2, then 4; after three rounds all have the result.",
        508,
    )
    columns = [38 + 46 * rank for rank in range(8)]
    drawing.heading(18, "binomial tree: up to rank 0, and down again")
    distances = (1, 2, 4, 4, 2, 1)
    for row, distance in enumerate(distances):
        y, up = 44 + row * 42, row < 3
        for rank in range(0, 8, 2 * distance):
            sender, receiver = (rank + distance, rank) if up else (rank, rank + distance)
            drawing.arrow((columns[sender], y + 11), (columns[receiver], y + 31), colour="accent")
    for row in range(7):
        holders = range(0, 8, (1, 2, 4, 8, 4, 2, 1)[row])
        for rank in holders:
            drawing.dot(columns[rank], 44 + row * 42, str(rank), "blue_3" if row >= 3 else "plain")
    drawing.heading(334, "recursive doubling: all at once")
    for row, distance in enumerate((1, 2, 4)):
        y = 360 + row * 42
        for rank in range(8):
            drawing.arrow((columns[rank], y + 11), (columns[rank ^ distance], y + 31), colour="accent")
    for row in range(4):
        for rank in range(8):
            drawing.dot(columns[rank], 360 + row * 42, str(rank), LEVELS[row])
    return drawing
