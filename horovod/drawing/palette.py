"""The colours of all pictures, each light and dark: CSS chooses, or a file has the light ones.

Those of data are of Okabe and Ito ("Color Universal Design", 2008), which the colour-blind can tell apart,
the pale ones darkened until they stand out on white by 3 to 1. Text has a contrast of 4.5 or more.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["COLOURS", "SERIES", "light", "rules"]

SERIES = ("blue", "orange", "green", "pink", "ochre", "sky")  # of data, in the order in which they are taken
# name: (light, dark)
COLOURS = {
    "page": ("#f7f8f9", "#101317"),
    "paper": ("#ffffff", "#16191f"),
    "plain": ("#eef1f4", "#2a3038"),
    "faint": ("#dde1e5", "#323940"),
    "line": ("#8793a0", "#77828f"),
    "quiet": ("#52606d", "#a9b4c0"),
    "ink": ("#1b2733", "#e8ecf1"),
    "accent": ("#c2410c", "#fb923c"),
    "link": ("#0067a3", "#6cbcf0"),
    "note": ("#fff6e0", "#2e2716"),
    "blue": ("#0072b2", "#56a8e0"),
    "orange": ("#d55e00", "#f08c47"),
    "green": ("#009371", "#3fc39f"),
    "pink": ("#b35a91", "#dc8fbd"),
    "ochre": ("#a87400", "#dcae48"),
    "sky": ("#3a8fc2", "#8cc8ee"),
    "yellow": ("#e3a72f", "#d8b45c"),
    "grey": ("#59626b", "#b4bdc5"),
    "pale_blue": ("#cfe3f7", "#1f4a73"),
    "pale_orange": ("#fde0b6", "#6d4a12"),
    "pale_green": ("#cdebd3", "#1b5230"),
    "pale_pink": ("#f3d1e6", "#6b2f57"),
    "blue_1": ("#d3e3f5", "#23405f"),  # more and more of something
    "blue_2": ("#a9cbee", "#2a5c8f"),
    "blue_3": ("#7fb2e5", "#2869ab"),
}


def light(name: str) -> str:
    """The colour for what has one scheme only."""
    return COLOURS[name][0]


def rules(selector: str, names: Iterable[str] = COLOURS) -> str:
    """CSS by which a selector's elements have variables of these names: as readers like, light in print."""
    both = ("".join(f"--{name}:{COLOURS[name][scheme]};" for name in names) for scheme in (0, 1))
    of_light, of_dark = (f"{selector}{{{variables}}}" for variables in both)
    return f"{of_light}\n@media screen and (prefers-color-scheme:dark){{{of_dark}}}"
