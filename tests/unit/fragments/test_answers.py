"""What a node process tells its caller where pickle meets a user's code."""

import pickle
import sys

import pytest

from ordstream.fragments import answers


class Leaves(Exception):
    """Ends the process that pickles it."""

    def __reduce__(self):
        raise SystemExit(7)


class LeavesLater(Exception):
    """Ends the process that reads it."""

    def __reduce__(self):
        return sys.exit, (3,)


@pytest.mark.parametrize("kind", [Leaves, LeavesLater])
def test_an_exception_that_can_not_be_pickled_is_told(kind):
    """Its node was lost, with an exit code."""
    found = pickle.loads(answers.dumps(kind("why")))
    assert type(found) is RuntimeError
    assert str(found) == f"{kind.__name__}: why"
