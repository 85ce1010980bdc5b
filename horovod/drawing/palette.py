"""The colours of all pictures, each for light and dark pages: CSS chooses, or a file has the light ones.

The data colours are Okabe and Ito's ("Color Universal Design", 2008), which colour-blind readers can tell
apart; pale ones are darkened to a contrast of 3 to 1 on white. Text has a contrast of 4.5 or more.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["COLOURS", "SERIES", "light", "rules"]

SERIES = ("blue", "orange", "green", "pink", "ochre", "sky")  # of data, in order of use
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
    "blue_1": ("#d3e3f5", "#23405f"),  # increasing amounts
    "blue_2": ("#a9cbee", "#2a5c8f"),
    "blue_3": ("#7fb2e5", "#2869ab"),
}


def light(name: str) -> str:
    """Return the light colour, for pictures with only one scheme."""
    return COLOURS[name][0]


def rules(selector: str, names: Iterable[str] = COLOURS) -> str:
    """Return CSS that defines these colours as variables of a selector's elements: in the reader's scheme on
    screens, light in print.
    """
    both = ("".join(f"--{name}:{COLOURS[name][scheme]};" for name in names) for scheme in (0, 1))
    of_light, of_dark = (f"{selector}{{{variables}}}" for variables in both)
    return f"{of_light}\n@media screen and (prefers-color-scheme:dark){{{of_dark}}}"
