"""A stream that is killed in the middle and goes on: its output is that of a run that nobody killed.

``python examples/survive_a_crash.py`` starts itself as a process that counts clicks per user into files,
kills it (SIGKILL), starts it again, and compares. Two things make the output exact. The checkpoint holds the
counts and the place in the source. The names of the output files say how far the output came, and what was
delivered before is not delivered again.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import ordstream as od

CLICKS = pa.schema([("user", pa.int64())])
COUNTS = od.Pipeline(CLICKS).key_by("user").count()


def count_into_files(folder: Path) -> None:
    """The process that is killed: each batch of counts becomes a file, whole or not at all."""
    done = sorted(folder.glob("*.count"))
    through = od.OrderTag.from_bytes(bytes.fromhex(done[-1].stem)) if done else None
    source = od.ParquetSource(str(folder / "clicks-*.parquet"))
    with COUNTS.stream(source, checkpoint=folder / "state", every=20_000, emitted_through=through) as out:
        for batch in out:
            pq.write_table(pa.table(batch), folder / "unfinished")
            (folder / "unfinished").rename(folder / f"{bytes(out.emitted_through).hex()}.count")
            time.sleep(0.02)  # so that there is time for a crash


def main() -> int:
    """Kill the process, let it go on, and compare what both have written with one run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clicks = pa.table({"user": [k * k % 1009 for k in range(500_000)]}, schema=CLICKS)
        pq.write_table(clicks, folder / "clicks-1.parquet", row_group_size=10_000)
        command = [sys.executable, str(Path(__file__).resolve()), name]
        with subprocess.Popen(command) as process:
            while process.poll() is None and len(list(folder.glob("*.count"))) < 5:
                time.sleep(0.01)
            process.kill()
        before = len(list(folder.glob("*.count")))
        subprocess.run(command, check=True)
        files = sorted(folder.glob("*.count"))
        same = pa.concat_tables(map(pq.read_table, files)).equals(COUNTS.run(clicks).table)
        word = "the same" if same else "WRONG"
        print(f"killed after {before} of {len(files)} files; the output is {word}")
        return 0 if same and before < len(files) else 1


if __name__ == "__main__":
    sys.exit(count_into_files(Path(sys.argv[1])) if len(sys.argv) > 1 else main())
