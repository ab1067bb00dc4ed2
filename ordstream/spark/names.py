"""Which of a frame's columns a name means, as Spark finds it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from ordstream.errors import SchemaError, unknown_column


def is_case_sensitive(df: DataFrame) -> bool:
    """`spark.sql.caseSensitive` of the frame's session."""
    return str(df.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() == "true"


def find_column(name: str, names: Sequence[str], case_sensitive: bool, where: str) -> int:
    """The place of a column. One that has exactly this name comes before those that have it in another case.

    Raises
    ------
    SchemaError
        If there is none, or are several.
    """
    found = [place for place, one in enumerate(names) if one == name]
    if not found and not case_sensitive:
        found = [place for place, one in enumerate(names) if _same(one, name)]
    if not found:
        raise unknown_column(name, names, where)
    if len(found) > 1:
        meant = {names[place] for place in found}
        if len(meant) == 1:
            raise SchemaError(
                f"{where} has {len(found)} columns {meant.pop()!r}; rename or drop all but one"
            )
        raise SchemaError(
            f"{where} has several columns that {name!r} may mean ({', '.join(map(repr, sorted(meant)))}): "
            "write it as it is, rename one, or set spark.sql.caseSensitive"
        )
    return found[0]


def _same(one: str, other: str) -> bool:
    """Whether two names differ in case only, character by character, as Java compares them."""
    return len(one) == len(other) and all(
        a == b or a.upper() == b.upper() or a.lower() == b.lower() for a, b in zip(one, other, strict=True)
    )
