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


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        (134217728, "134217728"),
        ("2671247360", "2671247360"),
        (1000, "1k"),
        (1000.0, "1k"),
        (0.5, "500m"),
        (1e16, "10P"),
        (1e30, "1e+30"),
        ("0.5", "500m"),
        (".5", "500m"),
        ("1.5", "1500m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.1m", "1m"),
        ("1n", "1m"),
        ("1234567u", "1235m"),
        ("100M", "100M"),
        ("1000M", "1G"),
        ("0.1G", "100M"),
        ("1000E", "1000E"),
        ("1e3", "1e3"),
        ("1e4", "10e3"),
        ("1000e0", "1e3"),
        ("1e-5", "1e-3"),
        ("1e2", "100"),
        ("1e31", "10e30"),
        ("8Mi", "8Mi"),
        (" 64Mi ", "64Mi"),
        ("1024Mi", "1Gi"),
        ("1025Mi", "1025Mi"),
        ("0.5Gi", "512Mi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1.0001Gi", "1073849198183m"),
        ("0.0001Ki", "103m"),
        ("8Ei", "9223372036854775807"),
        ("0", "0"),
        (0.0, "0"),
        ("0Mi", "0"),
        ("-1.5", "-1500m"),
        ("-0.5Gi", "-512Mi"),
        ("1.234", "1.234"),  # Go's parser keeps the text of whole thousandths
        ("1E3", "1E3"),
        ("1e999999999", "1e999999999"),
    ],
)
def test_quantity_is_printed_as_go_does(written: quantity.Quantity, printed: str) -> None:
    assert quantity.canonical(written) == printed
    assert quantity.canonical(printed) == printed


@pytest.mark.parametrize("text", ["", "1K", "1Gi ki", "1e", "nan"])
def test_no_quantity_has_no_print(text: str) -> None:
    with pytest.raises(quantity.QuantityError):
        quantity.canonical_list({"cpu": text})


@given(st.integers(0, 10**9), st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "Gi", "e3"]), st.booleans())
def test_print_has_the_value_in_thousandths(count: int, suffix: str, half: bool) -> None:
    written = f"{count}.5{suffix}" if half else f"{count}{suffix}"
    assert quantity.parse(quantity.canonical(written)) == quantity.milli_value(written) * 10**6
