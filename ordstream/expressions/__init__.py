"""Column expressions: written (`expr`), bound to a schema (`lowering`), and as postfix code with its
meaning (`bound`).
"""

from ordstream.expressions.expr import Alias, Column, Expr, col, if_else, lit, when

__all__ = ["Alias", "Column", "Expr", "col", "if_else", "lit", "when"]
