"""Quantities: exact values, rounding and errors."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.v1.scalars import quantity


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("1", 10**9),
        (1, 10**9),
        (0.5, 5 * 10**8),
        ("100m", 10**8),
        ("1.5Gi", 3 * 2**29 * 10**9),
        ("1k", 10**12),
        ("1E", 10**27),
        ("1e3", 10**12),
        ("1E3", 10**12),
        ("12E-1", 12 * 10**8),
        ("5.", 5 * 10**9),
        (".5", 5 * 10**8),
        ("-1.5", -15 * 10**8),
        ("+2", 2 * 10**9),
        ("1n", 1),
        ("0.1n", 1),  # finer than a nano rounds away from zero
        ("-0.1n", -1),
        ("0", 0),
        ("1e-400", 1),
        ("0e999999999", 0),
        ("1e999999999", (2**63 - 1) * 10**9),
        ("16Ei", (2**63 - 1) * 10**9),
        ("-16Ei", -(2**63 - 1) * 10**9),
        (" 1Mi ", 2**20 * 10**9),
        (1e-07, 100),
    ],
)
def test_value_is_exact(text: quantity.Quantity, nanos: int) -> None:
    assert quantity.parse(text) == nanos


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "1 Gi",
        "1gi",
        "1K",
        "1KiB",
        "1.2.3",
        "--1",
        "1e",
        "1e+",
        "0x10",
        ".",
        "1_0",
        "\u0661",
        "1" * 200,
        True,
        1e400,
    ],
)
def test_invalid_quantity_is_refused(text: quantity.Quantity) -> None:
    with pytest.raises(quantity.QuantityError, match="is not a quantity"):
        quantity.parse(text)


@pytest.mark.parametrize(
    ("text", "whole", "milli"), [("100m", 1, 100), ("1.0001", 2, 1001), ("-1.5", -1, -1500), ("3", 3, 3000)]
)
def test_rounding_is_up(text: str, whole: int, milli: int) -> None:
    assert quantity.value(text) == whole
    assert quantity.milli_value(text) == milli


@given(st.text(max_size=30))
def test_any_text_is_a_number_or_a_quantity_error(text: str) -> None:
    with contextlib.suppress(quantity.QuantityError):
        assert isinstance(quantity.parse(text), int)


@given(st.integers(-(10**15), 10**15), st.sampled_from(["", "m", "k", "Ki"]))
def test_order_of_numbers_is_kept(number: int, suffix: str) -> None:
    assert quantity.parse(f"{number}{suffix}") < quantity.parse(f"{number + 1}{suffix}")
