"""The list of codecs, their names and options, and the options that are refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from codec_cases import FORMATS, NAMES
from refusals import refused

from horovod import _native as native
from horovod.common.exceptions import WrongArgument, WrongSetting
from horovod.common.numpy_codec import named_codec
from horovod.common.numpy_codec.named import FORMATS as TWINS

LEVELS = native.simd_levels()


def test_codecs_say_what_they_are() -> None:
    bit8, bit16 = native.get_codec("bit8"), native.get_codec("bit16")
    assert (bit8.name, bit8.block_size, bit8.level) == ("bit8/128", 128, native.simd_level())
    assert (bit16.name, bit16.block_size) == ("bit16", 1)
    assert not bit8.is_stochastic
    assert not bit16.is_stochastic
    assert native.get_codec("bit8", 32).name == "bit8/32"
    assert [native.get_codec("bit8", level=level).level for level in LEVELS] == LEVELS
    assert [native.codec_named("bit8/128", level=level).level for level in LEVELS] == LEVELS
    assert {"scalar", "baseline", native.simd_level()} <= set(LEVELS)


@pytest.mark.parametrize(
    ("format_name", "options", "name"),
    [
        (
            "bit8",
            {"variant": "e4m3", "rounding": "nearest", "rotation": "none", "levels": "uniform"},
            "bit8/128",
        ),
        ("bit8", {"variant": "", "rounding": "", "rotation": "", "levels": ""}, "bit8/128"),
        ("bit8", {"variant": "e5m2", "rounding": "stochastic", "seed": 7}, "bit8/128/e5m2/stochastic/seed7"),
        ("bit8", {"block_size": 256, "variant": "e3m4"}, "bit8/256/e3m4"),
        ("int8", {}, "int8/128"),
        ("int8", {"block_size": 1024, "rounding": "stochastic"}, "int8/1024/stochastic"),
        ("int4", {}, "int4/128"),
        ("int4", {"rotation": "hadamard", "levels": "lloyd"}, "int4/128/hadamard/lloyd"),
        (
            "int4",
            {"rotation": "hadamard", "rounding": "stochastic", "seed": 2**64 - 1},
            "int4/128/stochastic/hadamard/seed18446744073709551615",
        ),
    ],
)
def test_what_is_not_the_default_is_in_the_name(format_name: str, options: dict[str, Any], name: str) -> None:
    codec = native.get_codec(format_name, **options)
    assert codec.name == name
    assert codec.is_stochastic == ("stochastic" in name)


@pytest.mark.parametrize("name", NAMES)
def test_names_lead_back_to_the_codec(name: str) -> None:
    codec, twin = native.codec_named(name), named_codec(name)
    assert codec.name == name
    assert (codec.block_size, codec.is_stochastic) == (twin.block_size, twin.stochastic)


def test_the_list_of_all_tests_misses_no_option() -> None:
    words = {word for name in NAMES for word in name.split("/")[1:] if not word.startswith("seed")}
    assert {"stochastic", "hadamard", "lloyd"} <= words
    assert {row.variant for row in FORMATS} - {"", "e4m3"} <= words
    assert {name.split("/")[0] for name in NAMES} == {row.format for row in FORMATS}


def test_the_readable_twin_has_the_same_formats() -> None:
    sizes = {row.format: (row.scale_bytes, row.bits) for row in FORMATS}
    assert {name: tuple(twin.layout) for name, twin in TWINS.items()} == sizes
    assert list(TWINS) == list(sizes)


@pytest.mark.parametrize(
    ("name", "block_size", "level", "code", "value"),
    [
        ("bit4", 0, "", "codec_unknown", "bit4"),
        ("", 0, "", "codec_unknown", ""),
        ("bit8/128", 0, "", "codec_unknown", "bit8/128"),
        ("bit16", 128, "", "codec_has_no_blocks", 128),
        ("bit8", 16, "", "codec_block_wrong", 16),
        ("bit8", 100, "", "codec_block_wrong", 100),
        ("bit8", 2048, "", "codec_block_wrong", 2048),
        ("bit8", -128, "", "codec_block_wrong", -128),
        ("int4", 16, "", "codec_block_wrong", 16),
        ("int8", 2048, "", "codec_block_wrong", 2048),
    ],
)
def test_codecs_that_do_not_exist_are_refused(
    name: str, block_size: int, level: str, code: str, value: object
) -> None:
    with refused(WrongArgument, code, value=value):
        native.get_codec(name, block_size, level=level)


def test_a_simd_level_that_is_not_here() -> None:
    with refused(WrongSetting, "no_simd_level", value="avx9", choices=re.compile("baseline")):
        native.get_codec("bit8", level="avx9")


@pytest.mark.parametrize(
    ("format_name", "options", "code", "facts"),
    [
        ("bit16", {"variant": "e5m2"}, "codec_has_no_variants", {"codec": "bit16", "value": "e5m2"}),
        ("bit16", {"rounding": "stochastic"}, "codec_not_stochastic", {"codec": "bit16"}),
        ("bit16", {"rotation": "hadamard"}, "codec_has_no_rotation", {"codec": "bit16"}),
        ("bit16", {"seed": 1}, "seed_unused", {"codec": "bit16", "value": 1}),
        (
            "bit8",
            {"variant": "e2m5"},
            "codec_option_unknown",
            {"option": "variant", "value": "e2m5", "choices": "e4m3, e5m2, e3m4"},
        ),
        (
            "bit8",
            {"rounding": "up"},
            "codec_option_unknown",
            {"option": "rounding", "choices": "nearest, stochastic"},
        ),
        ("bit8", {"rotation": "hadamard"}, "codec_has_no_rotation", {"codec": "bit8"}),
        ("bit8", {"levels": "lloyd"}, "lloyd_without_rotation", {"codec": "bit8"}),
        ("bit8", {"seed": 3}, "seed_unused", {"codec": "bit8", "value": 3}),
        ("int8", {"variant": "e4m3"}, "codec_has_no_variants", {"codec": "int8", "value": "e4m3"}),
        ("int8", {"rotation": "hadamard"}, "codec_has_no_rotation", {"codec": "int8"}),
        ("int8", {"seed": 3}, "seed_unused", {"codec": "int8", "where": "rounding 'stochastic'"}),
        (
            "int4",
            {"rotation": "givens"},
            "codec_option_unknown",
            {"value": "givens", "choices": "none, hadamard"},
        ),
        (
            "int4",
            {"levels": "log"},
            "codec_option_unknown",
            {"option": "levels", "choices": "uniform, lloyd"},
        ),
        ("int4", {"levels": "lloyd"}, "lloyd_without_rotation", {"codec": "int4"}),
        (
            "int4",
            {"levels": "lloyd", "rotation": "hadamard", "rounding": "stochastic"},
            "lloyd_stochastic",
            {},
        ),
        ("int4", {"variant": "e3m4"}, "codec_has_no_variants", {"codec": "int4"}),
        ("int4", {"seed": 3}, "seed_unused", {"where": "rounding 'stochastic' or rotation 'hadamard'"}),
    ],
)
def test_options_a_format_has_not_are_refused(
    format_name: str, options: dict[str, Any], code: str, facts: dict[str, Any]
) -> None:
    with refused(WrongArgument, code, **facts):
        native.get_codec(format_name, **options)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_beyond_64_bits_are_refused(seed: int) -> None:
    with pytest.raises(TypeError):
        native.get_codec("bit8", rounding="stochastic", seed=seed)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        "bit8",
        "bit8/",
        "bit8/ 128",
        "bit8/128 ",
        "bit8/+128",
        "bit8/0128",
        "bit8/0x80",
        "bit8/1e2",
        "bit8/0",
        "bit8/99999999999999999999",
        "bit8/-128",
        "bit8/128/",
        "bit8/128//stochastic",
        "bit8/128/e4m3",
        "bit8/128/e9m9",
        "bit8/128/stochastic/e5m2",
        "bit8/128/stochastic/stochastic",
        "bit8/128/seed7",
        "bit8/128/stochastic/seed",
        "bit8/128/stochastic/seed0",
        "bit8/128/stochastic/seed-1",
        "bit8/128/stochastic/seed07",
        "bit8/128/stochastic/seed18446744073709551616",
        "int4/128/lloyd",
        "int4/128/lloyd/hadamard",
        "int4/128/hadamard/lloyd/x",
        "int4/128/hadamard\0",
        "bit16/1",
        "bit16/128",
        "bit32",
        "int8/64/e5m2",
        "BIT8/128",
        "bit8/128\n",
    ],
)
def test_names_that_another_rank_cannot_have_meant_are_refused(name: str) -> None:
    with refused(WrongArgument) as caught:
        native.codec_named(name)
    assert caught.value.code.startswith(("codec_", "lloyd_", "seed_"))
