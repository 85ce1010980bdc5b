"""Drawings of a topology: compares the whole text, and the elements of the SVG and their positions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
import topology_machines as made

from horovod.drawing.palette import COLOURS
from horovod.drawing.svg import width_of
from horovod.topology import routes, svg, text, words
from horovod.topology.canvas import BOXES
from horovod.topology.facts import GpuLink, Host, Nic, Ranks, Socket

TWO_PLAIN_HOSTS = """\
┌─ h1 ──────────────────────────────────────────────────────────────────────── rank 0 ─┐
│ memory 24 GiB, usable by a job: 2 threads                                            │
│ socket 0: AMD EPYC, 2 cores, 2 threads                                               │
│                                                                                      │
│ eth0: speed unknown, 10.77.0.1/24                                                    ├──┐
└──────────────────────────────────────────────────────────────────────────────────────┘  │
┌─ h2 ──────────────────────────────────────────────────────────────────────── rank 1 ─┐  │
│ memory 24 GiB, usable by a job: 2 threads                                            │  │
│ socket 0: AMD EPYC, 2 cores, 2 threads                                               │  │
│                                                                                      │  │
│ eth0: speed unknown, 10.77.0.2/24                                                    ├──┘
└──────────────────────────────────────────────────────────────────────────────────────┘
network 10.77.0.0/24: h1 eth0, h2 eth0
"""

PCIE_HOST = """\
+- node1 ------------------------------------------------------------------ ranks 0-1 -+
| memory 512 GiB, usable by a job: 112 threads                                         |
| socket 0: Intel Xeon Gold 6348 @ 2.60GHz, 28 cores, 56 threads, 256 GiB              |
| +-PCIe- switch                                                                       |
| |      +-PCIe- GPU 0: NVIDIA GeForce RTX 3090, 24 GiB                                |
| |      +-PCIe- GPU 1: NVIDIA GeForce RTX 3090, 24 GiB                                |
| +-PCIe- ens1: 25 Gbit/s, RDMA, 10.0.0.1/24, Mellanox MT27800 Family [ConnectX-5]     |
| socket 1: Intel Xeon Gold 6348 @ 2.60GHz, 28 cores, 56 threads, 256 GiB              |
| +-PCIe- GPU 2: NVIDIA GeForce RTX 3090, 24 GiB                                       |
| +-PCIe- GPU 3: NVIDIA GeForce RTX 3090, 24 GiB                                       |
| +-PCIe- eno1: 1 Gbit/s, 192.168.0.1/24, Intel Ethernet Connection X722               |
|                                                                                      |
|            GPU 0    GPU 1    GPU 2    GPU 3                                          |
| GPU 0          -   switch  sockets  sockets                                          |
| GPU 1     switch        -  sockets  sockets                                          |
| GPU 2    sockets  sockets        -     root                                          |
| GPU 3    sockets  sockets     root        -                                          |
| switch: PCIe, through a switch that both are on                                      |
| root: PCIe, through the root of their socket                                         |
| sockets: PCIe, across the sockets                                                    |
+--------------------------------------------------------------------------------------+
"""

THREE_ALIKE = """\
┌─ 3 x the same: h1, h2, h3 ──────────────────────────────────── ranks 0-5, 2 on each ─┐
│ memory 24 GiB, usable by a job: 2 threads                                            │
│ socket 0: AMD EPYC, 2 cores, 2 threads                                               │
│                                                                                      │
│ eth0: speed unknown, 10.77.0.0/24                                                    │
└──────────────────────────────────────────────────────────────────────────────────────┘
network 10.77.0.0/24: h1 eth0, h2 eth0, h3 eth0
"""

NASTY = Host(
    'a <b> & "c" \x07 名字',
    (Socket(None, None, None, 3, None),),
    None,
    1,
    nics=(Nic("<script>", "]]> & Co", "&amp;", None, ("10.0.0.1/24",), None, is_up=False),),
    notes=("NVML failed: <no>",),
)
MANY = replace(
    made.gpu_box("many"),
    sockets=tuple(Socket(i, "AMD EPYC", 8, 16, None) for i in range(5)),
    gpus=tuple(
        replace(gpu, index=i, socket=i // 12 or None) for i, gpu in enumerate(made.gpu_box().gpus * 3)
    ),
)
MESH = replace(  # some pairs have one link of NVLink, some two, others none
    made.gpu_box("mesh"),
    gpu_links=tuple(
        GpuLink(i, j, "NVLink", 1 + (i + j) % 2) if (i * j) % 3 else GpuLink(i, j, "sockets")
        for i in range(8)
        for j in range(i + 1, 8)
    ),
)
PICTURES = {
    "gpu box": ((made.gpu_box(),), made.ranks_on(*[0] * 8)),
    "pcie": ((made.pcie_host(1), made.pcie_host(2)), made.ranks_on(0, 0, 0, 0, 1, 1, 1, 1)),
    "plain": (tuple(map(made.plain_host, range(1, 5))), made.ranks_on(0, 1, 2, 3)),
    "long": (tuple(map(made.plain_host, range(1, 60))), made.ranks_on(*range(59))),
    "nasty": ((NASTY,), made.ranks_on(0)),
    "many": ((MANY,), made.ranks_on(*[0] * 24)),
    "mesh": ((MESH,), made.ranks_on(*[0] * 8)),
    "no ranks": ((made.pcie_host(1), made.plain_host(2)), None),
}


def picture(name: str, prefix: str = "topology") -> str:
    hosts, ranks = PICTURES[name]
    return svg.drawing(hosts, ranks, routes.routes(ranks) if ranks else (), prefix)


def elements(drawing: str, kind: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(drawing).iter(f"{{http://www.w3.org/2000/svg}}{kind}"))


def texts_of(drawing: str) -> list[str]:
    return [element.text or "" for element in elements(drawing, "text")]


def paths(drawing: str, kind: str) -> list[ElementTree.Element]:
    return [path for path in elements(drawing, "path") if path.get("class") == kind]


def rectangles(drawing: str, kind: str = "") -> list[tuple[float, ...]]:
    """(x, y, width, height) of each box, or of a class of boxes; "-": without cards, which are stacked."""
    found = []
    for box in elements(drawing, "rect"):
        name = box.get("class", "")
        if kind in ("", name) or (kind == "-" and not name.endswith("-card")):
            found.append(tuple(float(box.get(key, "")) for key in ("x", "y", "width", "height")))
    return found


def boxes(drawing: str) -> list[tuple[str, float, float, float, float]]:
    """(text, left, top, right, bottom) of every text, in the widest of usual fonts."""
    found = []
    for element in elements(drawing, "text"):
        size, x, y = (float(element.get(name, "")) for name in ("font-size", "x", "y"))
        content = element.text or ""
        width = width_of(content, size, element.get("font-weight") == "600")
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[element.get("text-anchor", "")]
        found.append((content, left, y - 0.78 * size, left + width, y + 0.22 * size))
    return found


def test_one_is_singular_in_all_that_is_said_of_a_host() -> None:
    """The wires in the drawings of one core, and of two."""
    for count, thread, core in ((1, "1 thread", "1 core"), (2, "2 threads", "2 cores")):
        host = Host("h", (Socket(0, "X", count, count, None),), None, count)
        shown = text.drawing((host,), None)
        assert f"memory unknown, usable by a job: {thread} " in shown
        assert f"socket 0: X, {core}, {thread} " in shown
        texts = texts_of(svg.drawing((host,)))
        assert f"memory unknown, {thread} usable" in texts and f"{core}, {thread}" in texts


def test_what_a_card_is_called() -> None:
    def nic(**facts: Any) -> Nic:
        return Nic(
            **{"name": "e", "model": None, "driver": None, "bits_per_second": None} | facts,
            addresses=(),
            socket=None,
        )

    assert words.nic_model(nic(driver="virtio_net")) == "virtio_net" and words.nic_model(nic()) == ""
    assert words.nic_model(nic(model="Intel Corporation X", driver="d")) == "Intel X"
    assert words.speed(nic()) == "speed unknown" and words.speed(nic(is_up=False)) == "no link"
    assert words.speed(nic(bits_per_second=10**9, is_rdma=True)) == "1 Gbit/s, RDMA"


def test_gpus_on_one_switch_by_way_of_another_are_together() -> None:
    links = [GpuLink(0, 1, "switch"), GpuLink(2, 3, "switch"), GpuLink(4, 5, "root"), GpuLink(1, 2, "switch")]
    host = replace(made.gpu_box(), gpu_links=(GpuLink(6, 7, "switch"), *links))
    assert words.switches(host) == [[0, 1, 2, 3], [6, 7]]


def test_two_hosts_on_a_network() -> None:
    hosts = (made.plain_host(1), made.plain_host(2))
    assert text.drawing(hosts, made.ranks_on(0, 1)) == TWO_PLAIN_HOSTS


def test_a_host_in_ascii() -> None:
    assert text.plain(text.drawing((made.pcie_host(1),), made.ranks_on(0, 0))) == PCIE_HOST


def test_alike_hosts_are_drawn_once() -> None:
    hosts = tuple(map(made.plain_host, (1, 2, 3)))
    assert text.drawing(hosts, made.ranks_on(0, 0, 1, 1, 2, 2)) == THREE_ALIKE
    assert text.drawing(hosts, made.ranks_on(0, 1, 2, 2)).count("┌") == 3  # one of them has more ranks
    other = replace(hosts[1], memory_bytes=8 * 2**30)
    assert text.drawing((hosts[0], other, hosts[2]), None).count("┌") == 3


def test_gpus_that_all_have_the_same_links() -> None:
    shown = text.drawing((made.gpu_box(),))
    assert "│ NVLink, 12 links of 25 GB/s each way, between any two GPUs  " in shown
    assert "no rank ─┐" in shown


def test_several_networks_have_a_cable_each() -> None:
    hosts = (made.pcie_host(1), made.pcie_host(2))
    rows = text.drawing(hosts).splitlines()
    cables = [row[87:] for row in rows if row[87:88] == "├"]
    assert cables == ["├─────┐", "├──┐  │", "├──┼──┘", "├──┘"]
    assert rows[-2:] == [
        "network 192.168.0.0/24: node1 eno1, node2 eno1",
        "network 10.0.0.0/24: node1 ens1, node2 ens1",
    ]


@pytest.mark.parametrize("name", PICTURES)
def test_text_fits_in_a_terminal(name: str) -> None:
    hosts, ranks = PICTURES[name]
    for ascii_only in (False, True):
        shown = text.drawing(hosts, ranks)
        shown = text.plain(shown) if ascii_only else shown
        assert max(map(len, shown.splitlines())) <= 100
        assert shown.isascii() == ascii_only or not ascii_only


@pytest.mark.parametrize("name", PICTURES)
def test_texts_of_the_svg_are_apart_and_inside(name: str) -> None:
    drawing = picture(name)
    _, _, width, height = map(float, ElementTree.fromstring(drawing).get("viewBox", "").split())
    found = boxes(drawing)
    assert len(found) > 5
    for content, left, top, right, bottom in found:
        assert left >= 0 and right <= width + 0.1 and top >= 0 and bottom <= height, content
    for number, (one, *a) in enumerate(found):
        for other, *b in found[:number]:
            apart = a[0] >= b[2] or b[0] >= a[2] or a[1] >= b[3] or b[1] >= a[3]
            assert apart, f"{one!r} lies on {other!r}"


@pytest.mark.parametrize("name", PICTURES)
def test_texts_are_inside_their_boxes(name: str) -> None:
    """A text that begins in a box, such as a host or a socket, ends in it."""
    drawing = picture(name)
    for content, left, top, right, bottom in boxes(drawing):
        middle = (top + bottom) / 2
        for x, y, width, height in rectangles(drawing):
            if x <= left < x + width and y < middle < y + height:
                assert right <= x + width + 0.1 and y <= top and bottom <= y + height, content


@pytest.mark.parametrize("name", PICTURES)
def test_boxes_are_apart_or_one_holds_the_other(name: str) -> None:
    drawing = picture(name)
    assert all(0 <= x < x + width <= svg.WIDTH for x, _, width, _ in rectangles(drawing))
    found = [(x, y, x + width, y + height) for x, y, width, height in rectangles(drawing, "-")]
    for number, a in enumerate(found):
        for b in found[:number]:
            common = (max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3]))
            assert common in (a, b) or common[0] >= common[2] or common[1] >= common[3], f"{a} lies on {b}"


@pytest.mark.parametrize("name", PICTURES)
def test_what_stands_in_the_middle_is_in_the_middle_of_its_box(name: str) -> None:
    drawing = picture(name)
    for element in elements(drawing, "text"):
        x, y = float(element.get("x", "")), float(element.get("y", ""))
        around = [
            (width * height, left + width / 2)
            for left, top, width, height in rectangles(drawing, "-")  # at whose edge ranks are
            if left < x < left + width and top < y < top + height
        ]
        if element.get("text-anchor") == "middle" and around:
            assert x == pytest.approx(min(around)[1], abs=2e-3), element.text  # written with six digits


Segment = tuple[float, float, float, float]  # left, top, right, bottom


def segments(drawing: str, *kinds: str) -> list[Segment]:
    """The straight segments of lines of these kinds."""
    found = []
    for path in elements(drawing, "path"):
        points = re.fullmatch(r"M(\S+) (\S+) L(\S+) (\S+)", path.get("d", ""))
        if points and path.get("class", "").removeprefix("topology-") in kinds:
            x, y, other_x, other_y = map(float, points.groups())
            assert x == other_x or y == other_y, "neither upright nor level"
            found.append((min(x, other_x), min(y, other_y), max(x, other_x), max(y, other_y)))
    return found


def touches(x: float, y: float, line: Segment) -> bool:
    return line[0] - 0.01 <= x <= line[2] + 0.01 and line[1] - 0.01 <= y <= line[3] + 0.01


@pytest.mark.parametrize("name", PICTURES)
def test_wires_lead_from_one_part_to_another(name: str) -> None:
    """Each end touches the edge of a box, or another wire.

    Cables reach slightly into a network's box, as its corners are round.
    """
    drawing = picture(name)
    edges: list[Segment] = []
    for x, y, width, height in rectangles(drawing):
        edges += [(x, y, x + width, y), (x, y + height, x + width, y + height)]
        edges += [(x, y, x, y + height), (x + width, y, x + width, y + height)]
    for box in elements(drawing, "rect"):
        x, y, width = (float(box.get(key, "")) for key in ("x", "y", "width"))
        edges += [(x, y, x + width, y + 10)] if box.get("rx") == "10" and width > svg.WIDTH - 10 else []
    wires = segments(drawing, "pcie", "nvlink", "cable", "between")
    assert bool(wires) == (name != "nasty")  # its connections are unknown
    for number, (left, top, right, bottom) in enumerate(wires):
        others = edges + wires[:number] + wires[number + 1 :]
        for x, y in ((left, top), (right, bottom)):
            assert any(touches(x, y, line) for line in others), (name, x, y)


def test_gpus_hang_on_their_switch_and_the_switch_on_the_socket() -> None:
    drawing = picture("pcie")
    assert [text for text, *_ in boxes(drawing)].count("switch") == 2  # one on each host
    switches = [box for box in rectangles(drawing, "topology-socket") if box[3] < 30]
    assert len(switches) == 2
    for x, y, width, height in switches:
        upright = [line for line in segments(drawing, "pcie") if x < line[0] == line[2] < x + width]
        ends_above = [line[3] for line in upright].count(y)
        assert (ends_above, [line[1] for line in upright].count(y + height)) == (2, 1)


def test_all_that_is_said_of_a_card_is_in_its_box() -> None:
    drawing = picture("pcie")
    cards = []
    for x, y, width, height in rectangles(drawing, "topology-nic"):
        inside = [box for box in boxes(drawing) if x <= box[1] < x + width]
        cards.append({text for text, _, top, _, bottom in inside if y < top and bottom < y + height})
    for number in (1, 2):
        for name, said, address in (("eno1", "1 Gbit/s", "192.168.0"), ("ens1", "25 Gbit/s, RDMA", "10.0.0")):
            assert any({name, said, f"{address}.{number}/24"} <= texts for texts in cards)


def test_names_are_escaped_and_printable() -> None:
    drawing = picture("nasty")
    texts = texts_of(drawing)
    assert 'a <b> & "c" \ufffd 名字' in texts and "<script>" in texts
    assert not elements(drawing, "script")
    assert "NVML failed: <no>" in texts


def test_the_parts_of_a_gpu_box() -> None:
    texts = texts_of(picture("gpu box"))
    assert texts.count("PCIe") == 4  # from each socket to GPUs, and to network cards
    assert [f"GPU {number}" in texts for number in range(8)] == [True] * 8
    assert "NVLink × 12" in texts and "4 × ib0, ib1, ib2, ib3" in texts
    assert len(paths(picture("gpu box"), "topology-nvlink")) == 9


def test_cables_lead_to_the_network() -> None:
    drawing = picture("pcie")
    assert len(paths(drawing, "topology-cable")) == 6  # from four cards, and the two that they end in
    assert "measured: 941 Mbit/s in each direction, 60 µs to the next host" in texts_of(drawing)
    assert not paths(picture("gpu box"), "topology-cable")


def test_routes_are_listed() -> None:
    hosts, ranks = PICTURES["pcie"]
    chosen = routes.routes(ranks)
    texts = texts_of(picture("pcie"))
    for route in chosen:
        assert route.name in texts and words.duration(route.milliseconds) in texts
    assert "Routes of allreduces among 8 ranks" in texts
    named = {"not compressed" if route.compression == "none" else route.compression for route in chosen}
    assert len(named) > 1 and named <= set(texts) and "none" not in texts
    assert "Routes" not in svg.drawing(hosts, ranks)


def test_hosts_that_are_drawn_as_one_are_named_below_their_number() -> None:
    texts = texts_of(picture("long"))
    assert "59 × the same" in texts and [text for text in texts if text.startswith("h1, h2, h3, ")]
    texts = texts_of(picture("no ranks"))
    assert texts.count("node1") == texts.count("h2") == 1


def test_several_drawings_on_a_page() -> None:
    """All names begin with the prefix, and no style applies to the surrounding page."""
    drawing = picture("mesh", "second")
    assert {name.split("-")[0] for name in re.findall(r'class="([^"]+)"', drawing)} == {"second"}
    (style,) = elements(drawing, "style")
    selectors = re.findall(
        r"([^{}]+)\{(?!\.)", (style.text or "").replace("@media screen and (prefers-color-scheme:dark){", "")
    )
    assert selectors and all(selector.strip().startswith(".second") for selector in selectors)
    assert " id=" not in drawing and "http" not in drawing.replace("http://www.w3.org/2000/svg", "")


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, as WCAG 2 defines it."""
    lights = []
    for colour in (one, other):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(lights) + 0.05) / (min(lights) + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_texts_are_legible_in_both_schemes(scheme: int) -> None:
    colours = {name: pair[scheme] for name, pair in COLOURS.items()}
    grounds = {kind: colours[fill] for kind, (fill, _) in BOXES.items()} | {"paper": colours["paper"]}
    for ground in ("paper", "card", "socket", "gpu", "nic", "rank"):
        assert contrast(colours["ink"], grounds[ground]) >= 7
    for ground in ("paper", "card", "socket"):
        assert contrast(colours["quiet"], grounds[ground]) >= 4.5


@pytest.mark.parametrize(
    ("write", "texts"),
    [
        (words.memory, {2**29: "0.5 GiB", 2**30: "1 GiB", 25276510208: "23.5 GiB", 2**39: "512 GiB"}),
        (words.memory, {1000 * 2**30: "0.977 TiB", 2**41: "2 TiB"}),
        (words.rate, {9.4e7: "94 Mbit/s", 999e6: "999 Mbit/s", 1e9: "1 Gbit/s", 2.5e9: "2.5 Gbit/s"}),
        (words.rate, {4e11: "400 Gbit/s", 1e12: "1000 Gbit/s"}),
        (words.size, {12: "12 B", 999: "999 B", 1000: "1 KB", 10**6: "1 MB", 25_000_000: "25 MB"}),
        (words.size, {10**9: "1 GB", 2 * 10**9: "2 GB"}),
        (words.duration, {0.0042: "0.004 ms", 1: "1.00 ms", 1.5: "1.50 ms", 10: "10.0 ms"}),
        (words.duration, {12.34: "12.3 ms", 100: "100 ms", 1234.5: "1234 ms"}),
        (words.numbers, {(5, 0, 1, 2, 9, 8): "0-2, 5, 8-9"}),
        (words.rank_label, {(): "no rank", (3,): "rank 3", (3, 4): "ranks 3-4"}),
        (lambda count: words.number_of(count, "rank"), {0: "0 ranks", 1: "1 rank", 2: "2 ranks"}),
    ],
)
def test_numbers_are_written_short(write: Callable[[Any], str], texts: dict[Any, str]) -> None:
    assert {value: write(value) for value in texts} == texts


def test_ways_between_gpus_are_listed() -> None:
    assert words.connections(made.pcie_host(1)) == [
        "PCIe through a switch that both are on: 0-1",
        "PCIe across the sockets: 0-2, 0-3, 1-2, 1-3",
        "PCIe through the root of their socket: 2-3",
    ]
    assert Ranks((0, 1, 0), False, True, made.MEASURED).of(0) == [0, 2]
