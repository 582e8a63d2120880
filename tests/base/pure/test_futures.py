"""Futures: every callback runs, and the first exception of one is raised."""

import ast
from pathlib import Path

import pytest

import actors._base
from actors._base.messaging.futures import Future


def test_all_callbacks_run_though_one_fails() -> None:
    future: Future[int] = Future()
    seen: list[int] = []

    def fail(_: Future[int]) -> None:
        raise ValueError("of the first")

    future.add_done_callback(fail)
    future.add_done_callback(lambda over: seen.append(over.result(0)))
    with pytest.raises(ValueError, match="of the first"):
        future.set(7)
    assert seen == [7]
    assert future.result(0) == 7


def test_functions_make_futures_without_a_generic_type() -> None:
    """`Future[int]()` has typing make and keep a type, in memory that each process then has for itself."""
    made = []
    for path in Path(*actors._base.__path__).rglob("*.py"):
        functions = (one for one in ast.walk(ast.parse(path.read_text())) if isinstance(one, ast.FunctionDef))
        calls = (one for function in functions for one in ast.walk(function) if isinstance(one, ast.Call))
        made += [f"{path}:{one.lineno}" for one in calls if isinstance(one.func, ast.Subscript)]
    assert made == []
