"""The rules of the source tree: imports, choices by an operator's name, sizes.

`tests/unit/test_architecture.py` applies them. What breaks a rule today stands in
`tests/architecture_known.json`, and only there; ``python tests/architecture.py`` prints what is found,
``--write`` makes it what is known.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
KNOWN = ROOT / "tests" / "architecture_known.json"
PACKAGE = "ordstream"

#: From the bottom up. A module may import from its own folder and from rows below its own; two folders in
#: one row stand apart. Of a module the longest prefix counts.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("ordstream.errors",),
    ("ordstream.ground",),
    ("ordstream._core", "ordstream._core.ground"),
    ("ordstream._core.balance", "ordstream._core.state"),
    ("ordstream._core.flow",),
    ("ordstream._core.kernels",),
    ("ordstream.balance",),
    ("ordstream.expressions", "ordstream.udf"),
    ("ordstream.reference",),
    ("ordstream.operators",),
    ("ordstream.plan",),
    ("ordstream.reference.run_serial",),
    ("ordstream.snapshots",),
    ("ordstream.node",),
    ("ordstream.fragments",),
    ("ordstream.pipeline",),  # above what it starts: Pipeline.run, .stream, .explain(nodes)
    ("ordstream",),  # __init__, which reaches every public name: for what is written like a user's program
    ("ordstream.tpcxbb", "ordstream.spark"),
    ("ordstream._core.lab",),
    ("ordstream.lab",),
    ("ordstream.commands",),
    ("ordstream.testing", "ordstream.__main__"),
)

ROWS = 600  # a file has fewer
SHOWN = 60  # characters of a choice
COLUMNS = 110  # a line has fewer
SCREEN = 70  # lines of a function that do something: its docstring, comments and declarations come on top
TEXTS = (".py", ".pyi", ".pyx", ".pxd", ".hpp", ".h", ".cpp", ".md", ".sh", ".supp", ".pml")
FOLDERS = ("ordstream", "tests", "bench", "tools", "examples", "docs")
AT_THE_TOP = ("*.md", "*.py", "*.toml", "Makefile")


class Import(NamedTuple):
    """One import: where it stands, of what, and whether only a call of the function around it runs it."""

    file: str
    line: int
    module: str
    target: str
    in_function: bool

    @property
    def place(self) -> str:
        """For the reader of a failing test."""
        return f"{self.file}:{self.line} imports {self.target}"


class Choice(NamedTuple):
    """One place that chooses by an operator's name or class."""

    file: str
    line: int
    text: str

    @property
    def place(self) -> str:
        """For the reader of a failing test."""
        return f"{self.file}:{self.line} {self.text}"


# ------------------------------------------------------------ modules


def sources(root: Path, *suffixes: str, under: str = PACKAGE) -> list[Path]:
    """Files of a folder of the tree with one of these suffixes, sorted."""
    return sorted(file for file in (root / under).rglob("*") if file.suffix in suffixes and file.is_file())


def module_of(root: Path, file: Path) -> str:
    """Dotted name of a source file; a package's `__init__` has the package's."""
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(root: Path) -> set[str]:
    """All modules of the package."""
    return {module_of(root, file) for file in sources(root, ".py", ".pyx", ".pxd")}


def layer_of(module: str) -> tuple[int, str]:
    """Row and prefix of a module in `LAYERS`.

    Raises
    ------
    LookupError
        The module is in no row: a new folder needs one.
    """
    rows = [(len(prefix), row, prefix) for row, prefixes in enumerate(LAYERS) for prefix in prefixes
            if module == prefix or (module.startswith(f"{prefix}.") and prefix != PACKAGE)]  # fmt: skip
    if not rows:
        raise LookupError(f"{module} is in no layer: give its folder one in tests/architecture.py")
    _, row, prefix = max(rows)
    return row, prefix


# ------------------------------------------------------------ imports


def imports(root: Path) -> tuple[list[Import], int]:
    """All imports of one module of the package by another, and how many stand under ``if TYPE_CHECKING``."""
    known = modules(root)
    found: list[Import] = []
    for_types = 0
    for file in sources(root, ".py", ".pyx", ".pxd"):
        module = module_of(root, file)
        if file.suffix == ".py":
            taken, skipped = _of_python(file, module)
            for_types += skipped
        else:
            taken = _of_cython(file.read_text(encoding="utf-8"))
        name = file.relative_to(root).as_posix()
        for line, target, names, in_function in taken:
            for reached in _reached(target, names, known):
                if reached != module:
                    found.append(Import(name, line, module, reached, in_function))
    return found, for_types


def _reached(target: str, names: Iterable[str], known: set[str]) -> list[str]:
    """Modules that ``from target import names`` loads; of a package's own names the package."""
    if target != PACKAGE and not target.startswith(f"{PACKAGE}."):
        return []
    below = [f"{target}.{name}" if f"{target}.{name}" in known else target for name in names]
    return sorted(set(below)) or [target]


Taken = tuple[int, str, list[str], bool]


def _of_python(file: Path, module: str) -> tuple[list[Taken], int]:
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    found: list[Taken] = []
    skipped = 0

    def visit(node: ast.AST, in_function: bool, for_types: bool) -> None:
        nonlocal skipped
        taken: list[Taken] = []
        if isinstance(node, ast.Import):
            taken = [(node.lineno, alias.name, [], in_function) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            target = ".".join([*parts, *([node.module] if node.module else [])])
            taken = [(node.lineno, target, [alias.name for alias in node.names], in_function)]
        elif (
            isinstance(node, ast.Call) and _last(node.func) in ("import_module", "__import__") and node.args
        ):
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                taken = [(node.lineno, first.value, [], in_function)]
        if for_types:
            skipped += sum(target.split(".")[0] == PACKAGE for _, target, _, _ in taken)
        else:
            found.extend(taken)
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(node, ast.If) and _last(node.test) == "TYPE_CHECKING":
            for child in node.body:
                visit(child, inside, True)
            for child in node.orelse:
                visit(child, inside, for_types)
            return
        for child in ast.iter_child_nodes(node):
            visit(child, inside, for_types)

    visit(ast.parse(file.read_text(encoding="utf-8")), False, False)
    return found, skipped


_CYTHON = re.compile(
    r"^(?P<indent>[ \t]*)(?:from[ \t]+(?P<target>[\w.]+)[ \t]+c?import[ \t]+(?P<names>\([^)]*\)|[^\n]*)"
    r"|c?import[ \t]+(?P<plain>[\w., \t]+))",
    re.MULTILINE,
)


def _of_cython(text: str) -> list[Taken]:
    found: list[Taken] = []
    for match in _CYTHON.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        inside = bool(match["indent"])
        if match["target"]:
            bare = re.sub(r"#[^\n]*", "", match["names"]).strip("() \t\n").replace("\n", " ")
            names = [name.split()[0] for name in bare.split(",") if name.strip()]
            found.append((line, match["target"], names, inside))
        else:
            names = [name.split()[0] for name in match["plain"].split(",") if name.strip()]
            found += [(line, name, [], inside) for name in names]
    return found


def wrong_imports(root: Path, taken: Iterable[Import] | None = None) -> list[Import]:
    """Imports that point up, or to the side; `taken`: all of the tree, where they are known."""
    wrong = []
    for one in imports(root)[0] if taken is None else taken:
        row, folder = layer_of(one.module)
        below, target = layer_of(one.target)
        if folder != target and below >= row:
            wrong.append(one)
    return wrong


def circles(root: Path, taken: Iterable[Import] | None = None) -> list[list[str]]:
    """Sets of modules that import each other, in a circle; imports in functions count too."""
    edges: dict[str, set[str]] = {module: set() for module in modules(root)}
    for one in imports(root)[0] if taken is None else taken:
        edges[one.module].add(one.target)
    return sorted(sorted(part) for part in _components(edges) if len(part) > 1)


def _components(edges: dict[str, set[str]]) -> Iterator[list[str]]:
    """Strongly connected components, after Tarjan."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            found.append(stack[at:])
            del stack[at:]

    for node in sorted(edges):
        if node not in index:
            visit(node)
    yield from found


# ------------------------------------------------------------ ladders

#: Operators by name, where a plan's stage says which it is; the names of their classes come on top.
NAMES = frozenset(
    """
    aggregate assert_ordered compiled compiled_keyed count count_window deltas distinct explode filter
    flat_map forward_fill lag map map_batches pair_up pairs preceding process project python_batch
    python_filter python_flat python_keyed python_process python_rows regression scan select sessionize
    shed top_k top_values with_columns
    """.split()  # noqa: SIM905
)


#: A table of words for users, of which some are names of operators: it chooses nothing.
WORDS = ("ordstream/pipeline/synonyms.py",)


def operator_classes(root: Path) -> set[str]:
    """Names of the classes under `operators/` that derive from `Operator`, from one another too."""
    bases: dict[str, set[str]] = {}
    for file in sources(root, ".py", under=f"{PACKAGE}/operators"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                names = {_last(base) for base in node.bases}
                bases.setdefault(node.name, set()).update(names)
    found: set[str] = set()
    while more := {name for name, above in bases.items() if above & (found | {"Operator"})} - found:
        found |= more
    return found


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def choices(root: Path) -> list[Choice]:
    """Places outside `operators/` that choose by an operator's name or class.

    Not looked at in `expressions/`, where an instruction has an `.op` too.
    """
    classes = operator_classes(root)
    files = {file.stem for file in sources(root, ".py", under=f"{PACKAGE}/operators")} - {
        "__init__",
        "arguments",
    }
    names = NAMES | files | {_snake(name) for name in classes}
    found = []
    for file in sources(root, ".py", ".pyx", ".pxd"):
        name = file.relative_to(root).as_posix()
        if name.startswith((f"{PACKAGE}/operators/", f"{PACKAGE}/expressions/")) or name in WORDS:
            continue
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".py":
            nodes = list(ast.walk(ast.parse(text)))
            found += [Choice(name, node.lineno, ast.unparse(node).partition("\n")[0][:SHOWN])
                      for node in _ladders(nodes, _imported(nodes, classes), names)]  # fmt: skip
        else:
            for match in _BY_NAME.finditer(text):
                found.append(Choice(name, text.count("\n", 0, match.start()) + 1, match[0]))
    return sorted(found)


_BY_NAME = re.compile(r"\w+\.op[ \t]*(?:==|!=|(?:not[ \t]+)?in\b)[ \t]*[^\n:]*[\"'][^\n:]*")


def _imported(nodes: Iterable[ast.AST], classes: set[str]) -> set[str]:
    """Of the classes those that a file can mean: imported, or reached through a module of `operators`."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            (f"{PACKAGE}.operators", PACKAGE)
        ):
            found |= {alias.name for alias in node.names} & classes
            if any(
                alias.name == "operators" or node.module == f"{PACKAGE}.operators" for alias in node.names
            ):
                found |= classes
        elif isinstance(node, ast.Import) and any(
            a.name.startswith(f"{PACKAGE}.operators") for a in node.names
        ):
            found |= classes
    return found


def _ladders(nodes: list[ast.AST], classes: set[str], names: frozenset[str] | set[str]) -> Iterator[Any]:
    aliases = {alias.asname: alias.name for node in nodes if isinstance(node, ast.ImportFrom)
               for alias in node.names if alias.asname}  # fmt: skip

    def is_op(node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and node.attr == "op"

    def has_op(node: ast.AST) -> bool:
        return any(is_op(inner) for inner in ast.walk(node))

    def is_class(node: ast.AST) -> bool:
        last = _last(node)
        return aliases.get(last, last) in classes

    def has_class(node: ast.AST) -> bool:
        return any(is_class(inner) for inner in ast.walk(node))

    def told_name(node: ast.AST) -> bool:
        """The name of a type: `__name__` and such."""
        return isinstance(node, ast.Attribute) and node.attr in ("__name__", "__qualname__")

    for node in nodes:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            constants = {c.value for side in sides for c in ast.walk(side) if isinstance(c, ast.Constant)}
            types = [side for side in sides if isinstance(side, ast.Call) and _last(side.func) == "type"]
            types += [side for side in sides if _last(side) == "__class__"]
            if (any(map(is_op, sides)) or (types and any(map(has_class, sides)))
                    or (any(map(told_name, sides)) and constants & names)):  # fmt: skip
                yield node
        elif isinstance(node, ast.Match):
            patterns = [inner for case in node.cases for inner in ast.walk(case.pattern)]
            if has_op(node.subject) or any(
                isinstance(p, ast.MatchClass) and is_class(p.cls) for p in patterns
            ):
                yield node
        elif isinstance(node, ast.Dict):
            keys = [key for key in node.keys if key is not None]
            strings = {
                key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)
            }
            if any(map(is_class, keys)) or (2 * len(strings & names) >= max(len(keys), 3)):
                yield node
        elif isinstance(node, ast.Subscript) and has_op(node.slice):
            yield node
        elif isinstance(node, ast.Call):
            called = _last(node.func)
            asks = called in ("isinstance", "issubclass") and len(node.args) == 2 and has_class(node.args[1])
            looks_up = called in ("get", "getattr") and any(map(has_op, node.args))
            if asks or looks_up or (called == "register" and any(map(is_class, node.args))):
                yield node


def _last(node: ast.AST) -> str:
    """The last name of `a.b.c`; empty for anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


# ------------------------------------------------------------ sizes


def texts(root: Path) -> list[Path]:
    """Every file that a reader reads."""
    below = [file for folder in FOLDERS for file in sources(root, *TEXTS, under=folder)]
    return below + sorted(file for pattern in AT_THE_TOP for file in root.glob(pattern))


def long_files(root: Path) -> dict[str, int]:
    """Lines of files that have too many; pages, which are read in parts, may."""
    found = {
        file: len(file.read_text(encoding="utf-8").splitlines())
        for file in texts(root)
        if file.suffix != ".md"
    }
    return {file.relative_to(root).as_posix(): count for file, count in found.items() if count >= ROWS}


def long_functions(root: Path) -> dict[str, int]:
    """Lines of functions that are too long, by file and name; of a method with its class."""
    found = {}
    for file in sources(root, ".py", ".pyx", ".pxd"):
        name = file.relative_to(root).as_posix()
        text = file.read_text(encoding="utf-8")
        functions = _functions_of_python(text) if file.suffix == ".py" else _functions_of_cython(text)
        found.update({f"{name}: {function}": lines for function, lines in functions if lines > SCREEN})
    return found


def _functions_of_python(text: str) -> Iterator[tuple[str, int]]:
    rows = text.splitlines()

    def visit(node: ast.AST, above: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            inside = f"{above}{child.name}." if isinstance(child, ast.ClassDef) else above
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                told = child.body[0].end_lineno if ast.get_docstring(child) is not None else None
                shown = rows[told or child.body[0].lineno - 1 : child.end_lineno]
                yield f"{above}{child.name}", sum(map(_does_something, shown))
            yield from visit(child, inside)

    yield from visit(ast.parse(text), "")


_HEAD = re.compile(
    r"^(?P<indent> *)(?:cdef|cpdef|def)\b(?! (?:class|extern|struct|enum)\b)[^=]*?(?P<name>\w+)\("
)
_CLASS = re.compile(r"^cdef class (\w+)|^class (\w+)")
_DECLARATION = re.compile(r"^ +cdef [^=(]*(?:=.*)?$")


def _functions_of_cython(text: str) -> Iterator[tuple[str, int]]:
    """By indentation: a head whose brackets close before a colon, then what stands further right."""
    rows = text.splitlines()
    above = ""
    at = 0
    while at < len(rows):
        if found := _CLASS.match(rows[at]):
            above = f"{found[1] or found[2]}."
        head = _HEAD.match(rows[at])
        if head is None:
            at += 1
            continue
        depth = last = 0
        for last in range(at, len(rows)):
            bare = re.sub(r"\"[^\"]*\"|#.*", "", rows[last])
            depth += bare.count("(") - bare.count(")")
            if depth == 0:
                break
        at = last + 1
        if not re.sub(r"#.*", "", rows[last]).rstrip().endswith(":"):
            continue  # a declaration
        indent = len(head["indent"])
        body = []
        while at < len(rows) and (not rows[at].strip() or len(rows[at]) - len(rows[at].lstrip()) > indent):
            body.append(rows[at])
            at += 1
        if body and body[0].lstrip().startswith('"""'):
            end = 0 if body[0].count('"""') > 1 else next(k for k in range(1, len(body)) if '"""' in body[k])
            body = body[end + 1 :]
        shown = [row for row in body if _does_something(row) and not _DECLARATION.match(row)]
        yield f"{above if indent else ''}{head['name']}", len(shown)


def _does_something(row: str) -> bool:
    return bool(row.strip()) and not row.lstrip().startswith("#")


def wide_lines(root: Path) -> dict[str, int]:
    """How many lines of a file are too wide. Rows of a table, and what a page quotes, can't be broken."""
    found = {}
    for file in texts(root):
        quoted, count = False, 0
        for line in file.read_text(encoding="utf-8").splitlines():
            if file.suffix == ".md":
                quoted ^= line.lstrip().startswith("```")
                if quoted or line.lstrip().startswith("|"):
                    continue
            count += len(line) >= COLUMNS
        if count:
            found[file.relative_to(root).as_posix()] = count
    return found


class Survey(NamedTuple):
    """All that breaks a rule, with its places."""

    imports: list[Import]
    for_types: int
    wrong: list[Import]
    circles: list[list[str]]
    choices: list[Choice]
    long_files: dict[str, int]
    wide_lines: dict[str, int]
    long_functions: dict[str, int]

    def listed(self) -> dict[str, Any]:
        """In the shape of `KNOWN`: without line numbers, which other changes move."""
        ladders: dict[str, int] = {}
        for choice in self.choices:
            key = f"{choice.file}: {choice.text}"
            ladders[key] = ladders.get(key, 0) + 1
        return {
            "imports": sorted({f"{one.file} -> {one.target}" for one in self.wrong}),
            "circles": self.circles,
            "ladders": dict(sorted(ladders.items())),
            "long_files": self.long_files,
            "wide_lines": self.wide_lines,
            "long_functions": self.long_functions,
        }


def survey(root: Path = ROOT) -> Survey:
    """Look at everything once."""
    taken, for_types = imports(root)
    wrong, round_ = wrong_imports(root, taken), circles(root, taken)
    sizes = long_files(root), wide_lines(root), long_functions(root)
    return Survey(taken, for_types, wrong, round_, choices(root), *sizes)


def known() -> dict[str, Any]:
    """What is known to break a rule."""
    listed: dict[str, Any] = json.loads(KNOWN.read_text(encoding="utf-8"))
    return listed


def main(arguments: list[str]) -> int:
    """Print what breaks a rule, place by place; with ``--write`` make it what is known."""
    found = survey()
    for place in [one.place for one in (*found.wrong, *found.choices)]:
        print(place)
    for circle in found.circles:
        print(f"circle: {', '.join(circle)}")
    print(f"{len(found.imports)} imports between modules, {found.for_types} more for type checkers only")
    if "--write" in arguments:
        KNOWN.write_text(json.dumps(found.listed(), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
