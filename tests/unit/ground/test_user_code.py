"""Where in the user's code an exception was raised."""

import json
import pickle

import pyarrow as pa
import pytest
from process_functions import SOURCE, fails_late, rows, totals, totals_at_end

import ordstream as od
from ordstream.fragments import answers
from ordstream.fragments.figures import Outcome
from ordstream.fragments.same_process import run_here
from ordstream.ground.user_code import place_of
from ordstream.reference.run_serial import run_serial


def inner(row):
    raise ValueError("no")


def outer(row):
    return inner(row)


def reads(row):
    return json.loads("{")


def line_of(function, further=1):
    return function.__code__.co_firstlineno + further


ONE = pa.table({"a": [1]})


@pytest.mark.parametrize(
    ("function", "place"),
    [
        (outer, f"{__file__}:{line_of(inner)}, in inner"),
        (reads, f"{__file__}:{line_of(reads)}, in reads"),  # not the line in json's own code
        (lambda row: 1 // 0, f"{__file__}:"),
    ],
    ids=["called by it", "in a library", "lambda"],
)
def test_an_operator_error_shows_the_innermost_line_of_the_user_s(function, place):
    pipeline = od.Pipeline(ONE.schema).filter(function)
    with pytest.raises(od.OperatorError) as failed:
        pipeline.run(ONE)
    assert failed.value.place.startswith(place)
    assert f"\n  at: {failed.value.place}\n  row: {{'a': 1}}" in str(failed.value)
    assert str(run_serial(pipeline, ONE).error) == str(failed.value)


def test_it_comes_from_another_process():
    late = od.Pipeline(SOURCE).map(fails_late, schema=SOURCE).key_by("user").count()
    flushed = od.Pipeline(SOURCE).key_by("user")
    flushed = flushed.process(
        totals, schema={"user": int, "n": int}, state={"n": int}, on_flush=totals_at_end
    )
    for pipeline, count, function in ((late, 20_000, fails_late), (flushed, 900, totals_at_end)):
        with pytest.raises(od.OperatorError) as failed:
            pipeline.run(rows(count), processes=2)
        where = f"{function.__code__.co_filename}:{line_of(function, 2)}"
        assert failed.value.place == f"{where}, in {function.__name__}"


def test_what_no_line_of_the_user_s_raised_has_no_place():
    pipeline = od.Pipeline(ONE.schema).select(b=od.col("a") // 0)
    with pytest.raises(od.OperatorError) as failed:
        pipeline.run(ONE)
    assert failed.value.place == ""
    assert "at:" not in str(failed.value)
    assert place_of(None) == place_of(ValueError("never raised")) == ""


def test_in_a_library_only_it_is_the_function_that_was_called():
    pipeline = od.Pipeline(pa.schema([("s", pa.string())])).filter(json.loads, name="parse")
    with pytest.raises(od.OperatorError) as failed:
        pipeline.run(pa.table({"s": ["{"]}))
    assert failed.value.place.startswith(f"{json.__file__}:")
    assert failed.value.place.endswith("in loads")


def in_one_node(pipeline, source):
    list(pipeline.stream(source))


def over_two_nodes(pipeline, source):
    run_here(pipeline, source, 2, {})


@pytest.mark.parametrize("run", [in_one_node, over_two_nodes])
def test_a_failing_source_shows_its_line(run):
    def source():
        yield ONE.to_batches()[0]
        raise OSError("gone")

    with pytest.raises(od.SourceError, match="the source failed after 1 tuples: OSError: gone") as failed:
        run(od.Pipeline(ONE.schema).filter(od.col("a") > 0).key_by("a").count(), source())
    assert str(failed.value).endswith(f"\n  at: {__file__}:{line_of(source, 2)}, in source")


class Unshown(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def unshown(row):
    raise Unshown


def test_what_can_t_show_itself_is_told_by_its_type_one_tuple_at_a_time_too():
    for policy in ("fail", "skip"):
        pipeline = od.Pipeline(ONE.schema).filter(unshown, on_error=policy)
        expected = run_serial(pipeline, ONE)
        if policy == "skip":
            assert expected.reasons == ["Unshown"]
            assert pipeline.run(ONE).report.operators[0].first_skipped.reason == "Unshown"
        else:
            assert expected.error.reason == "Unshown"


def test_what_can_t_show_itself_leaves_a_process():
    class Local(Unshown):
        """Can't be pickled either."""

    cause, error = Local(), od.OperatorError("f", 1, None, "Local")
    ended = Outcome(fragment=0, node=0, report=None, error=error, cause=cause)
    found = pickle.loads(answers.dumps(ended))
    assert (str(found.cause), str(found.error)) == ("Local", str(error))
    assert str(pickle.loads(answers.dumps(cause))) == "Local"


class Refused(Exception):
    """Of this module, as a script's own is of the script."""

    def __init__(self, code):
        Exception.__init__(self, f"code {code}")
        self.code = code


class Ended(BaseException):
    """No error of a row."""


def of_a_node(class_):
    """The class as a node process has it: made again, and no other object can be pickled in its place."""
    return type(class_.__name__, class_.__bases__, dict(class_.__dict__))


def test_a_class_of_the_script_comes_back_as_itself():
    """It was a RuntimeError that told its text: no `except Refused`, and no `code`."""
    cause, ended = of_a_node(Refused)(7), of_a_node(Ended)("now")
    assert type(cause) is not Refused
    error = od.OperatorError("f", 1, None, "Refused: code 7")
    outcome = Outcome(fragment=0, node=0, report=None, error=error, cause=cause)
    found = pickle.loads(answers.dumps(outcome)).cause
    assert (type(found), found.code) == (Refused, 7)
    found = pickle.loads(answers.dumps(ended))
    assert (type(found), str(found)) == (Ended, "now")
    group = pickle.loads(answers.dumps(ExceptionGroup("both", [cause, ValueError(1)])))
    assert [type(one) for one in group.exceptions] == [Refused, ValueError]


def test_a_class_that_the_caller_has_not_is_told(monkeypatch):
    sent = answers.dumps(of_a_node(Refused)(7))
    monkeypatch.delitem(globals(), "Refused")
    assert repr(pickle.loads(sent)) == "RuntimeError('Refused: code 7')"
