"""The Python of README and docs that starts Spark, run as it stands, in the session of the other tests."""

import pytest
from pages import PAGES, python_blocks, run_blocks

from ordstream.spark import session

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(block.spark for block in python_blocks(page))],
    ids=lambda page: page.name,
)
def test_python_blocks_run(page, spark, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "local_session", lambda: spark)
    assert run_blocks(page, capsys, spark=True) == len(python_blocks(page))
