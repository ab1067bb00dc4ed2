"""What Spark's source of files writes down, as far as it is read here."""

import json

import pytest

pytest.importorskip("pyspark")

from ordstream.errors import SourceError
from ordstream.spark.streaming import file_source_log
from ordstream.spark.streaming.file_source_log import check_names


def entry(folder, number, names, before=(), compact=False):
    folder.mkdir(parents=True, exist_ok=True)
    files = [*before, *((name, number) for name in names)]
    lines = [json.dumps({"path": f"file:///in/{name}", "timestamp": 1, "batchId": at}) for name, at in files]
    text = "\n".join(["v1", *lines])
    (folder / f"{number}{'.compact' if compact else ''}").write_text(text, "utf-8")
    return files


@pytest.mark.parametrize("block", [1, 7, 1 << 16])
def test_of_an_entry_with_all_files_those_that_came_with_it_are_read(tmp_path, monkeypatch, block):
    monkeypatch.setattr(file_source_log, "_BLOCK", block)
    folder, files = tmp_path / "spark" / "sources" / "0", []
    for number in range(9):
        files = entry(folder, number, [f"ü{number}", f"b{number}"], files)
    entry(folder, 9, ["c", "d", "e"], files, compact=True)
    assert file_source_log._names(folder / "9.compact", 9) == [f"file:///in/{name}" for name in "cde"]
    check_names(tmp_path, {})
    entry(folder, 9, ["c", "d%5B1%5D"], files, compact=True)
    with pytest.raises(SourceError, match=r"d\[1\]: .*names of the 2 files"):
        check_names(tmp_path, {})
    assert file_source_log._names(folder / "9.compact", 8) == []


def test_the_files_of_all_batches_are_not_read_for_those_of_one(tmp_path, monkeypatch):
    """Spark writes all of them down in every tenth micro-batch."""
    files = [(f"{number:09}.parquet", number // 2) for number in range(20_000)]
    entry(tmp_path, 10_000, ["a", "b"], files, compact=True)
    read = []

    def loads(line):
        read.append(line)
        return json.JSONDecoder().decode(line.decode())

    monkeypatch.setattr(file_source_log.json, "loads", loads)
    assert len(file_source_log._names(tmp_path / "10000.compact", 10_000)) == 2
    assert len(read) == 3


def test_an_entry_that_can_not_be_read_is_sparks_to_tell(tmp_path):
    for text in ("", "v1", "v1\n{", "v1\n{}", 'v1\n{"batchId":3,"path":1}\n[', "v1\n[1]"):
        (tmp_path / "3").write_text(text)
        assert file_source_log._names(tmp_path / "3", 3) == []
    assert file_source_log._names(tmp_path / "4", 4) == []
    assert file_source_log._names(None, 4) == []
