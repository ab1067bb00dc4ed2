"""Pickling functions by value, for a process that can't import them: the library cloudpickle, or PySpark's
copy of it.

The copy is loaded as the file that it is: `import pyspark.cloudpickle` brings all of PySpark along, which
takes longer than anything else that a started process imports.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

NAME = "ordstream._cloudpickle"
"""Of PySpark's copy among the loaded modules; bytes that it made refer to it."""


def library() -> ModuleType | None:
    """cloudpickle, loaded now; None: neither is there. Call it before unpickling what it pickled."""
    if NAME in sys.modules:
        return sys.modules[NAME]
    if importlib.util.find_spec("cloudpickle") is not None:
        return importlib.import_module("cloudpickle")
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        return None
    file = Path(pyspark.origin).parent / "cloudpickle" / "cloudpickle.py"
    spec = importlib.util.spec_from_file_location(NAME, file)
    if spec is None or spec.loader is None or not file.exists():
        return None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    return module
