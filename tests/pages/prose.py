"""Counts sentences that are hard to read, in docstrings, comments, messages and pages. Part of `make lint`.

The counts in `prose.json` are a ratchet: a package may have fewer hits than written there, never more. `--list` shows
the hits, `--keep` writes the present counts. A hit is a hint: a sentence may be right though it is counted.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).with_name("prose.json")
MOST_WORDS = 25
PAGES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "GLOSSARY.md", "SECURITY.md")
PACKAGES = ("actors", "supervisor", "proto")
LOGGING = {"debug", "info", "warning", "error", "exception", "critical"}
VAGUE = re.compile(
    r"\b(nobody|somebody|everybody|anybody|whoever|whatever|whose turn|one that|those (?:that|who)"
    r"|who (?:has|wants|asks|knows))\b",
    re.IGNORECASE,
)
NOUN_CLAUSE = re.compile(r"(?:What|Who|Whose|Whom|Which|Where|How|Whether|Those|That)\b")
DIALECT = re.compile(
    r"\b(nursery|bury|buried|entrance|untaken|aside|crew|trouble|turns|own_part|strays|unheard)\b", re.IGNORECASE
)


class Text(NamedTuple):
    """A docstring, comment, message or paragraph."""

    line: int
    words: str


def _calls(node: ast.Call) -> Iterator[Text]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in LOGGING or name.endswith(("Error", "Refused")):
        for argument in node.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str) and " " in argument.value:
                yield Text(argument.lineno, argument.value)


def python_texts(source: str) -> Iterator[Text]:
    """Docstrings, also of attributes; comments, line by line; messages of logs and errors."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield Text(node.lineno, node.value.value)
        elif isinstance(node, ast.Call):
            yield from _calls(node)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#!|# (noqa|type|fmt):", token.string):
            yield Text(token.start[0], token.string.lstrip("# "))


def page_texts(page: str) -> Iterator[Text]:
    """Paragraphs and list items; no code, tables or headings."""
    plain = re.sub(r"```.*?```", lambda code: "\n" * code[0].count("\n"), page, flags=re.DOTALL)
    line = 1
    for block in re.split(r"(?<=\n)\s*\n", plain):
        if not block.startswith("    ") and not block.lstrip().startswith("|"):
            for item in re.split(r"(?m)^\s*(?:[-*]|\d+\.) ", block):
                yield Text(line, re.sub(r"(?m)^#+ .*$", "", item))
        line += block.count("\n") + 1


def sentences(text: str) -> list[str]:
    """Sentences of three words and more; code in backquotes counts as one word."""
    plain = re.sub(r"`[^`]*`", "X", re.sub(r"\s+", " ", text)).strip()
    return [one for one in re.split(r"(?<=[.!?:;])\s+(?=[A-Z`*])", plain) if len(one.split()) > 2]


def hits(text: str) -> Iterator[str]:
    """Problems of a text's sentences."""
    for number, sentence in enumerate(sentences(text)):
        count = len(sentence.split())
        if count > MOST_WORDS:
            yield f"{count} words: {sentence}"
        if found := VAGUE.search(sentence):
            yield f"vague ({found[1]}): {sentence}"
        if found := DIALECT.search(sentence):
            yield f"private word ({found[1]}): {sentence}"
        if number == 0 and NOUN_CLAUSE.match(sentence) and not sentence.endswith("?"):
            yield f"opens with a noun clause: {sentence}"


def files() -> Iterator[Path]:
    """Pages and modules, without generated ones."""
    yield from (ROOT / page for page in PAGES if (ROOT / page).exists())
    for package in PACKAGES:
        found = sorted((ROOT / package).rglob("*"))
        yield from (path for path in found if path.suffix in {".py", ".md"} and "_pb2" not in path.name)


def part(path: Path) -> str:
    """The part of the project whose count a file belongs to: a page, or a package of the second level."""
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) < 3 else "/".join(parts[:2])


def count(*, show: bool) -> tuple[Counter[str], int]:
    """Hits by part of the project, and the number of sentences."""
    found: Counter[str] = Counter()
    total = 0
    for path in files():
        content = path.read_text(encoding="utf-8")
        for text in page_texts(content) if path.suffix == ".md" else python_texts(content):
            total += len(sentences(text.words))
            for hit in hits(text.words):
                found[part(path)] += 1
                if show:
                    print(f"{path.relative_to(ROOT)}:{text.line}: {hit[:200]}")
    return found, total


def problems(found: Counter[str], kept: dict[str, int]) -> list[str]:
    """A line for each part with more hits than it had."""
    return [
        f"{name}: {number} sentences that are hard to read, {kept.get(name, 0)} before"
        for name, number in sorted(found.items())
        if number > kept.get(name, 0)
    ]


def main(arguments: list[str]) -> int:
    """The exit code: 1 when a part has more hits than `prose.json` says."""
    parser = argparse.ArgumentParser(prog="python -m tests.pages prose", description=__doc__)
    parser.add_argument("--list", action="store_true", help="show each hit with file and line")
    parser.add_argument("--keep", action="store_true", help="write the present counts to prose.json")
    options = parser.parse_args(arguments)
    found, total = count(show=options.list)
    if options.keep:
        KEPT.write_text(json.dumps(dict(sorted(found.items())), indent=2) + "\n", encoding="utf-8")
    wrong = problems(found, json.loads(KEPT.read_text(encoding="utf-8")))
    print(f"prose: {found.total()} hits in {total} sentences, {1000 * found.total() // max(total, 1)} per 1,000")
    for line in wrong:
        print(f"{line}; shorten them, or see `python -m tests.pages prose --list`")
    return 1 if wrong else 0
