"""Actors ask lower layers only: no cycle of actors that wait for each other."""

import graphlib
import importlib
import pkgutil

import actors
from actors._base import Actor


def managers() -> dict[str, type[Actor]]:
    names = [module.name for module in pkgutil.iter_modules(actors.__path__) if not module.name.startswith("_")]
    return {name: importlib.import_module(f"actors.{name}.actor").ACTOR for name in names}


def test_every_public_package_is_one_process_of_its_name():
    assert {name: kind.name for name, kind in managers().items()} == {name: name for name in managers()}
    assert len(managers()) >= 11


def test_asks_of_actors_have_no_cycle():
    graphlib.TopologicalSorter({name: kind.asks for name, kind in managers().items()}).prepare()


def test_actors_ask_only_existing_actors():
    known = managers().keys()
    assert {name: kind.asks - known for name, kind in managers().items() if kind.asks - known} == {}
