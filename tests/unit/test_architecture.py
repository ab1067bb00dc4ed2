"""The source tree keeps its rules (`tests/architecture.py`), but for `tests/architecture_known.json`.

What is listed must be exactly what is found: who mends a place takes it off the list, with
``python tests/architecture.py --write``. Sizes may only fall. Each rule is tried on small trees too.
"""

from __future__ import annotations

import pytest
from architecture import (
    COLUMNS,
    LAYERS,
    NAMES,
    ROOT,
    SCREEN,
    choices,
    circles,
    imports,
    known,
    layer_of,
    long_files,
    long_functions,
    modules,
    operator_classes,
    survey,
    wide_lines,
    wrong_imports,
)

# ------------------------------------------------------------ the tree itself


@pytest.fixture(scope="module")
def tree_now():
    return survey()


def test_imports_point_one_way(tree_now):
    places = [one.place for one in tree_now.wrong]
    assert tree_now.listed()["imports"] == known()["imports"], "\n".join(["imports up or aside:", *places])


def test_no_modules_import_each_other_in_a_circle(tree_now):
    assert tree_now.circles == known()["circles"]


def test_nothing_chooses_by_an_operators_name_or_class(tree_now):
    places = [choice.place for choice in tree_now.choices]
    assert tree_now.listed()["ladders"] == known()["ladders"], "\n".join(["outside operators/:", *places])


def test_files_fit_a_reader(tree_now):
    allowed = known()["long_files"]
    grown = {file: count for file, count in tree_now.long_files.items() if count > allowed.get(file, 0)}
    assert not grown


def test_lines_fit_a_screen(tree_now):
    allowed = known()["wide_lines"]
    grown = {file: count for file, count in tree_now.wide_lines.items() if count > allowed.get(file, 0)}
    assert not grown


def test_functions_fit_a_screen(tree_now):
    allowed = known()["long_functions"]
    grown = {name: count for name, count in tree_now.long_functions.items() if count > allowed.get(name, 0)}
    assert not grown


def test_every_module_has_a_layer():
    assert {layer_of(module)[0] for module in modules(ROOT)} == set(range(len(LAYERS)))


def test_the_layers_are_those_that_architecture_md_tells():
    """From the bottom up, without the package's name, which stands for the package itself only."""
    told = " ← ".join(", ".join(name.removeprefix("ordstream.") for name in row) for row in LAYERS)
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").replace("`", "")
    assert f": {told}. " in " ".join(page.split())


def test_imports_for_types_are_counted_but_free(tree_now):
    """Were they looked at, or none found, the count would say so."""
    assert 0 < tree_now.for_types < 200


def test_the_names_of_operators_are_known():
    """Of those that a stage may have today, a sample."""
    assert {"count", "sessionize", "top_k", "shed", "project", "python_rows", "compiled"} <= NAMES


# ------------------------------------------------------------ the rules, on a tree


def tree(folder, **files):
    """A small tree: `a__b_py="text"` is ordstream/a/b.py, `_core__ground__x_pyx` a Cython module."""
    for name, text in files.items():
        stem, _, suffix = name.rpartition("_")
        file = folder / "ordstream" / f"{stem.replace('__', '/').replace('/init/', '/__init__')}.{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def places(root):
    return [f"{one.file}:{one.line} {one.target}" for one in wrong_imports(root)]


UP = {
    "module level": ("plan__x_py", "import os\nfrom ordstream.node.node import run\n", "plan/x.py:2"),
    "in a function": ("plan__x_py", "def f():\n    from ordstream.node import node\n", "plan/x.py:2"),
    "plain": ("plan__x_py", "import ordstream.node.node\n", "plan/x.py:1"),
    "relative": ("plan__x_py", "from ..node import node\n", "plan/x.py:1"),
    "by name": (
        "plan__x_py",
        "import importlib\nimportlib.import_module('ordstream.node.node')\n",
        "plan/x.py:2",
    ),
    "behind types": (
        "plan__x_py",
        "import typing\nif typing.TYPE_CHECKING:\n    import os\nelse:\n    import ordstream.node.node\n",
        "plan/x.py:5",
    ),
    "cimport": ("_core__flow__x_pyx", "from ordstream.node.node cimport a\n", "_core/flow/x.pyx:1"),
    "cimport over lines": (
        "_core__flow__x_pxd",
        "# a\nfrom ordstream.node.node cimport (\n  a,\n  b)\n",
        "_core/flow/x.pxd:2",
    ),
    "import in Cython": (
        "_core__flow__x_pyx",
        "cdef f():\n    from ordstream.node import node\n",
        "_core/flow/x.pyx:2",
    ),
    "plain cimport": ("_core__flow__x_pyx", "cimport ordstream.node.node\n", "_core/flow/x.pyx:1"),
    "errors import nothing": ("errors_py", "import ordstream.node.node\n", "errors.py:1"),
}


@pytest.mark.parametrize("how", UP)
def test_an_import_that_points_up_is_found(how, tmp_path):
    name, text, place = UP[how]
    root = tree(tmp_path, **{name: text}, node__node_py="")
    assert places(root) == [f"ordstream/{place} ordstream.node.node"]


def test_side_by_side_folders_stand_apart(tmp_path):
    root = tree(
        tmp_path,
        udf__a_py="from ordstream.expressions import b\n",
        expressions__b_py="",
        expressions__c_py="from ordstream.expressions import b\n",
    )
    assert places(root) == ["ordstream/udf/a.py:1 ordstream.expressions.b"]


def test_the_laboratory_is_on_top_of_the_core(tmp_path):
    root = tree(
        tmp_path,
        _core__balance__las_pyx="from ordstream._core.lab.simulator cimport Policy\n",
        _core__lab__simulator_pyx="from ordstream._core.kernels cimport count\n",
        _core__kernels__count_pyx="",
        lab__real_py="from ordstream._core.lab import simulator\n",
        commands__bench_py="from ordstream.lab import real\n",
        spark__batch_py="from ordstream.lab import real\n",
    )
    assert places(root) == [
        "ordstream/_core/balance/las.pyx:1 ordstream._core.lab.simulator",
        "ordstream/spark/batch.py:1 ordstream.lab.real",
    ]


def test_what_is_for_type_checkers_is_free_and_counted(tmp_path):
    text = "import typing\nif typing.TYPE_CHECKING:\n    from ordstream.node.node import Stream\n"
    root = tree(tmp_path, plan__x_py=text, node__node_py="import ordstream.plan.x\n")
    assert (places(root), circles(root), imports(root)[1]) == ([], [], 1)


def test_a_folder_without_a_layer_is_an_error(tmp_path):
    root = tree(tmp_path, misc__x_py="import ordstream.errors\n", errors_py="")
    with pytest.raises(LookupError, match=r"ordstream\.misc\.x is in no layer"):
        wrong_imports(root)


def test_circles(tmp_path):
    """Also through a function, and through Cython; a package that shows its own modules' names is none."""
    root = tree(
        tmp_path,
        plan__init___py="from ordstream.plan.a import A\n",
        plan__a_py="def f():\n    from ordstream.plan import b\n",
        plan__b_py="import ordstream.plan.c\n",
        plan__c_py="from ordstream.plan.a import A\n",
        plan__d_py="from ordstream.plan.a import A\n",
        _core__flow__x_pyx="from ordstream._core.flow.y cimport Y\n",
        _core__flow__y_pxd="from ordstream._core.flow.x cimport X\n",
    )
    assert circles(root) == [
        ["ordstream._core.flow.x", "ordstream._core.flow.y"],
        ["ordstream.plan.a", "ordstream.plan.b", "ordstream.plan.c"],
    ]


OPERATORS = """
from dataclasses import dataclass

class Operator: ...

class Keyed(Operator): ...

@dataclass(frozen=True)
class Count(Keyed):
    name: str

class Every: ...

def choose(op):
    return op.op == "count" or isinstance(op, Count)
"""
LADDERS = {
    "equal": 'stage.op == "count"',
    "unequal": '"count" != stage.op',
    "in": 'stage.op in ("count", "lag")',
    "in a table": "stage.op in TABLE",
    "subscript": "TABLE[stage.op]",
    "get": "TABLE.get(stage.op)",
    "getattr": 'getattr(self, f"_{stage.op}")',
    "match": 'match stage.op:\n    case "count":\n        pass',
    "match a class": "match stage:\n    case Count():\n        pass",
    "dict of names": 'TABLE = {"count": 1, "lag": 2}',
    "dict of some names": 'TABLE = {"count": 1, "lag": 2, "window": 3, "rows": 4}',
    "dict of a file's name": 'TABLE = {"tumble": 1, "count": 2}',
    "dict of classes": "TABLE = {Count: 1}",
    "isinstance": "isinstance(stage, Count)",
    "isinstance of several": "isinstance(stage, int | Count)",
    "isinstance of a base": "isinstance(stage, (Keyed, str))",
    "isinstance under another name": "from ordstream.operators import Count as C\nisinstance(stage, C)",
    "isinstance by module": "from ordstream.operators import count\nisinstance(stage, count.Count)",
    "issubclass": "issubclass(kind, Count)",
    "type is": "type(stage) is Count",
    "type in": "type(stage) in (Count, str)",
    "class is": "stage.__class__ is Count",
    "name of the type": 'type(stage).__name__ == "count"',
    "name of the class": 'stage.__class__.__name__ in ("count", "x")',
    "single dispatch": "describe.register(Count)",
}
FREE = {
    "other class": "isinstance(stage, Every)",
    "the base of all": "isinstance(stage, Operator)",
    "asks the operator": "stage.describe(); stage.op; print(stage.op)",
    "other words": 'TABLE = {"count": 1, "rows": 2}',
    "one word": 'TABLE = {"count": 1}',
    "type of another": "type(x) is int",
}
IMPORTS = "from ordstream.operators.count import Count, Every, Keyed, Operator\n"


@pytest.mark.parametrize("how", LADDERS)
def test_a_ladder_is_found(how, tmp_path):
    root = tree(
        tmp_path,
        operators__count_py=OPERATORS,
        node__x_py=f"{IMPORTS}{LADDERS[how]}\n",
        operators__tumble_py="",
    )
    assert [choice.file for choice in choices(root)] == ["ordstream/node/x.py"], how


@pytest.mark.parametrize("how", FREE)
def test_what_is_no_ladder(how, tmp_path):
    root = tree(tmp_path, operators__count_py=OPERATORS, node__x_py=f"{IMPORTS}{FREE[how]}\n")
    assert choices(root) == [], how


def test_operators_are_known_by_their_base(tmp_path):
    root = tree(
        tmp_path,
        operators__count_py=OPERATORS,
        operators__lag_py="from x import count\nclass Lag(count.Count): ...\n",
    )
    assert operator_classes(root) == {"Keyed", "Count", "Lag"}


def test_a_class_of_the_same_name_elsewhere_is_free(tmp_path):
    text = "from collections import Count\nisinstance(x, Count)\n"
    assert choices(tree(tmp_path, operators__count_py=OPERATORS, node__x_py=text)) == []


def test_ladders_in_cython(tmp_path):
    text = (
        'cdef f(stage, code):\n    if code.op == OP_ADD:\n        return\n    return stage.op == "pairs"\n'
    )
    root = tree(tmp_path, operators__count_py=OPERATORS, _core__kernels__x_pyx=text)
    assert [(choice.line, choice.text) for choice in choices(root)] == [(4, 'stage.op == "pairs"')]


def test_sizes(tmp_path):
    wide = "x" * COLUMNS
    root = tree(
        tmp_path,
        plan__long_py="\n" * 600,
        plan__short_py="\n" * 599,
        plan__wide_pxd=f"# {wide}\n{wide[1:]}\n",
    )
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text(f"{wide}\n| {wide}\n```\n{wide}\n```\n{wide}\n")
    assert long_files(root) == {"ordstream/plan/long.py": 600}
    assert wide_lines(root) == {"ordstream/plan/wide.pxd": 1, "docs/a.md": 2}


def test_sizes_of_functions(tmp_path):
    """Docstrings, comments, empty lines and Cython's declarations are free."""
    does = "    x += 1\n"
    told = "a\n" * 200
    python = f'def f():\n    """{told}"""\n    # b\n\n{does * SCREEN}\n\nclass C:\n    def g(self):\n'
    cython = f'cdef int f(int a,\n           int b):\n    """a"""\n    cdef int c = 1\n{does * SCREEN}\n\n'
    cython += "cdef int declared(int)\n\ncdef class C:\n    def g(self):\n"
    root = tree(
        tmp_path,
        plan__fits_py=python + f"    {does}" * SCREEN,
        plan__long_py=python + f"    {does}" * (SCREEN + 1),
        plan__fits_pyx=cython + f"    {does}" * SCREEN,
        plan__long_pyx=cython + f"    {does}" * (SCREEN + 1),
    )
    assert long_functions(root) == {
        "ordstream/plan/long.py: C.g": SCREEN + 1,
        "ordstream/plan/long.pyx: C.g": SCREEN + 1,
    }
