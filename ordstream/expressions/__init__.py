"""Column expressions: written (`expr`), bound to a schema (`lowering`), and as postfix code with its
meaning (`bound`).
"""

from ordstream.expressions.conditions import When, when
from ordstream.expressions.expr import Alias, Column, Expr, col, if_else, lit
from ordstream.expressions.fields import Structs
from ordstream.expressions.lists import Lists
from ordstream.expressions.namespaces import Strings, Times
from ordstream.expressions.wrong_calls import answer_methods

__all__ = ["Alias", "Column", "Expr", "col", "if_else", "lit", "when"]

answer_methods(Expr)
answer_methods(When)
for _made, _family in ((Strings, "str."), (Times, "dt."), (Lists, "list."), (Structs, "struct.")):
    answer_methods(_made, _family)
