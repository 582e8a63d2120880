"""Parses YAML and JSON files to plain values with the line of every field.

It checks syntax, duplicate keys, anchors, merge keys, and limits of size, depth and expansion. `parse` reads the first
document of a file, as the kubelet does with manifests, `parse_all` reads all. Errors leave out values, which may be
secret. The module loads PyYAML, so the supervisor's process must not import it.
"""

import codecs
import json
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

import yaml

from proto.schema.fieldpath import Path
from proto.schema.scalars import plain_scalar, tagged_scalar

MAX_DEPTH = 64
"""Levels of nesting; the deepest field of a Pod is at about 15, of a KubeletConfiguration at 4."""
MAX_VALUES = 100_000
"""Values after the expansion of aliases and merge keys, so that a small file cannot grow without limit."""

# PyYAML's parser in C, if present, is ten times faster and gives the same events and marks.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Limits(NamedTuple):
    """The size limit of a file, and its name in errors."""

    max_bytes: int
    what: str
    """The kind of file, for sentences: `a manifest`."""
    content: str
    """The expected content: `a Pod`."""


class DocumentError(Exception):
    """A file with an error: `line` (from 1, 0 if unknown), `path` (() for the whole file), `problem`."""

    def __init__(self, line: int, path: Path, problem: str) -> None:
        super().__init__(line, path, problem)
        self.line = line
        self.path = path
        self.problem = problem


class Finding(NamedTuple):
    """An error that does not end the parsing."""

    line: int
    path: Path
    problem: str


class Document(NamedTuple):
    """Plain values, the line of each field (from 1), and the line of the next document (0: none)."""

    value: Any
    lines: dict[Path, int]
    next_document_line: int = 0

    def line(self, path: Path) -> int:
        """Return the line of a field, or of its nearest parent in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def parse(data: bytes, limits: Limits, repeated: list[Finding] | None = None) -> Document:
    """Return the first document of a file; raises DocumentError.

    Duplicate keys are errors, unless `repeated` is given: then they are added to it, and the last value counts.
    """
    text = _text(data, limits)
    if text.lstrip().startswith("{"):
        return _parse_json(text, limits, repeated)
    return _Builder(limits, repeated).parse(text)


def parse_all(data: bytes, limits: Limits) -> tuple[Document, ...]:
    """Return all documents of a file except empty ones; raises DocumentError. MAX_VALUES limits their sum."""
    text = _text(data, limits)
    if text.lstrip().startswith("{") and _is_json(text):
        return (_parse_json(text, limits, None),)
    return _Builder(limits, None).parse_all(text)


def _is_json(text: str) -> bool:
    """True when the whole text is one JSON value; else it is YAML that begins with a mapping in braces."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _text(data: bytes, limits: Limits) -> str:
    if len(data) > limits.max_bytes:
        problem = f"{len(data)} bytes are more than {limits.what} may have ({limits.max_bytes})"
        raise DocumentError(0, (), problem)
    data = data.removeprefix(codecs.BOM_UTF8)  # not by "utf-8-sig": a codec, imported at its first use
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError(line, (), "not UTF-8 text; save the file as UTF-8") from error


def _parse_json(text: str, limits: Limits, repeated: list[Finding] | None) -> Document:
    # YAML's flow mappings begin with a brace too. So invalid JSON is read as YAML, which also gives the line of an
    # error. The values come from the JSON parser, the lines from the builder. Tabs are legal between JSON's tokens, but
    # not in YAML.
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _Builder(limits, repeated).parse(text)
    if "\\u" in text:
        _refuse_half_characters(value)
    try:
        lines = _Builder(limits, repeated).parse(text.replace("\t", " ")).lines
    except DocumentError as error:
        if not isinstance(error.__cause__, yaml.YAMLError):
            raise
        # YAML cannot read all JSON (surrogate pairs, very long keys). Then the values have no lines.
        lines = {}
        json.loads(text, object_pairs_hook=lambda pairs: _check_repeated(pairs, repeated))
    return Document(value, lines)


def _refuse_half_characters(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise DocumentError(0, (), "half of a surrogate pair (\\ud800 to \\udfff) is not a character") from error


def _check_repeated(pairs: list[tuple[str, Any]], repeated: list[Finding] | None) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            if repeated is None:
                raise DocumentError(0, (name,), "the key is there twice; remove one")
            repeated.append(Finding(0, (name,), "the key is there twice; the last value counts"))
        seen.add(name)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _line(event: Any) -> int:
    line: int = event.start_mark.line + 1
    return line


class _Node(NamedTuple):
    """A parsed value: `value` is a scalar, a list of nodes or a list of (key node, value node)."""

    kind: str
    value: Any
    line: int


class _Builder:
    """Builds documents from the parser's events, and checks the depth before each recursion."""

    def __init__(self, limits: Limits, repeated: list[Finding] | None) -> None:
        self._limits = limits
        self._repeated = repeated
        self._anchors: dict[str | None, _Node | None] = {}
        self._lines: dict[Path, int] = {}
        self._values = 0

    def parse(self, text: str) -> Document:
        """Return the first document; raises DocumentError."""
        root: _Node | None = None
        following = 0
        try:
            events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
            for event in events:
                if isinstance(event, yaml.DocumentStartEvent):
                    if root is not None:
                        following = _line(event)
                        break
                    root = self._node(events, next(events), 1)
        except yaml.YAMLError as error:
            self._fail_syntax(error)
        if root is None or (root.kind == "scalar" and root.value is None):
            raise DocumentError(1, (), f"the file is empty; it must hold {self._limits.content}")
        return Document(self._plain(root, (), 1), self._lines, following)

    def parse_all(self, text: str) -> tuple[Document, ...]:
        """Return the documents that are not empty; raises DocumentError."""
        documents: list[Document] = []
        try:
            events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
            for event in events:
                if not isinstance(event, yaml.DocumentStartEvent):
                    continue
                self._anchors, self._lines = {}, {}
                root = self._node(events, next(events), 1)
                if not (root.kind == "scalar" and root.value is None):
                    documents.append(Document(self._plain(root, (), root.line), self._lines))
        except yaml.YAMLError as error:
            self._fail_syntax(error)
        return tuple(documents)

    def _fail_syntax(self, error: yaml.YAMLError) -> NoReturn:
        mark: Any = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = mark.line + 1 if mark is not None else 0
        reason = getattr(error, "problem", None) or str(error).splitlines()[0]
        if "nesting depth" in reason:  # the scanner of PyYAML 6.0.4 reads ahead, and has a limit of its own
            self._fail(line, f"nested deeper than {MAX_DEPTH} levels")
        raise DocumentError(line, (), f"not YAML: {reason}") from error

    def _fail(self, line: int, problem: str, path: Path = ()) -> NoReturn:
        raise DocumentError(line, path, problem)

    def _node(self, events: Iterator[Any], event: Any, depth: int) -> _Node:
        line = _line(event)
        if depth > MAX_DEPTH:
            self._fail(line, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(event, yaml.AliasEvent):
            node = self._anchors.get(event.anchor)
            if node is None:
                self._fail(line, "the alias (*NAME) has no anchor before it; put text that begins with * in quotes")
            return node
        anchor = event.anchor
        if anchor is not None:
            self._anchors[anchor] = None  # an alias inside its own anchor is an error, so there are no cycles
        if isinstance(event, yaml.ScalarEvent):
            node = _Node("scalar", self._scalar(event, line), line)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = _Node("list", self._items(events, depth), line)
        else:
            node = _Node("map", self._entries(events, depth), line)
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _items(self, events: Iterator[Any], depth: int) -> list[_Node]:
        items = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            items.append(self._node(events, event, depth + 1))
        return items

    def _entries(self, events: Iterator[Any], depth: int) -> list[tuple[_Node, _Node]]:
        entries = []
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            key = self._node(events, event, depth + 1)
            entries.append((key, self._node(events, next(events), depth + 1)))
        return entries

    def _scalar(self, event: Any, line: int) -> Any:
        if event.tag is not None:
            try:
                return tagged_scalar(event.tag, event.value)
            except ValueError as error:
                self._fail(line, str(error))
        return plain_scalar(event.value) if event.implicit[0] else event.value

    def _count(self, line: int) -> None:
        """Count a value, key or merged mapping."""
        self._values += 1
        if self._values > MAX_VALUES:
            self._fail(line, f"more than {MAX_VALUES} values; aliases count once for each use, as do merge keys")

    def _plain(self, node: _Node, path: Path, line: int) -> Any:
        self._count(line)
        self._lines.setdefault(path, line)
        if len(path) > MAX_DEPTH:
            self._fail(line, f"nested deeper than {MAX_DEPTH} levels")
        if node.kind == "scalar":
            return node.value
        if node.kind == "list":
            return [self._plain(item, (*path, index), item.line) for index, item in enumerate(node.value)]
        return self._mapping(node, path)

    def _mapping(self, node: _Node, path: Path, merges: int = 0) -> dict[str, Any]:
        """`merges` is the depth of nested merge keys."""
        if merges > MAX_DEPTH:
            self._fail(node.line, f"merge keys (<<) nested deeper than {MAX_DEPTH} levels", path)
        plain: dict[str, Any] = {}
        merged: list[_Node] = []
        first: dict[str, int] = {}
        last = self._last_places(node, path)
        for place, (key_node, value_node) in enumerate(node.value):
            key = self._key(key_node, path)
            if key == "<<" and value_node.kind != "scalar":
                merged.extend(value_node.value if value_node.kind == "list" else [value_node])
                continue
            if key in first:
                self._repeat(key_node.line, (*path, key), first[key])
            first.setdefault(key, key_node.line)
            if last.get(key, place) == place:
                plain[key] = self._plain(value_node, (*path, key), key_node.line)
        for source in merged:
            if source.kind != "map":
                self._fail(source.line, "a merge key (<<) takes mappings only", path)
            self._count(source.line)
            for key, value in self._mapping(source, path, merges + 1).items():
                self._count(source.line)
                plain.setdefault(key, value)
        return plain

    def _last_places(self, node: _Node, path: Path) -> dict[str, int]:
        """The place of each key's last value, which counts. Not needed where a repeated key is an error."""
        if self._repeated is None:
            return {}
        return {self._key(key_node, path): place for place, (key_node, _) in enumerate(node.value)}

    def _repeat(self, line: int, path: Path, first: int) -> None:
        problem = f"the key is there twice, first on line {first}"
        if self._repeated is None:
            self._fail(line, f"{problem}; remove one", path)
        self._repeated.append(Finding(line, path, f"{problem}; the last value counts"))

    def _key(self, node: _Node, path: Path) -> str:
        if node.kind != "scalar" or node.value is None:
            self._fail(node.line, "a key must be text", path)
        return str(node.value).lower() if isinstance(node.value, bool) else str(node.value)
