"""Figures of a run (figures.pxd)."""
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
import numpy as np
from ordstream._core.flow.elastic cimport Elastic
from ordstream._core.flow.ingress cimport mark_serials
from ordstream._core.flow.left_marks cimport left_marks_taken
from ordstream._core.flow.operator cimport Operator
from ordstream._core.flow.runtime cimport Runtime, stats_now
from ordstream._core.flow.scheduler cimport OperatorStats
from ordstream._core.flow.steps cimport MarkSteps, StepLog, mark_steps_take, steps_free
from ordstream._core.ground.arrow cimport output_export
from ordstream._core.ground.atomics cimport load_acquire, load_relaxed
from ordstream._core.ground.chunk cimport Chunk, Layout
from ordstream._core.ground.kernel cimport PS, SF, KernelOwner, skip_first
from ordstream._core.ground.output_batch cimport output_append, output_free, output_new
from ordstream._core.ground.output_columns cimport Output


cdef dict operator_figures(Operator* op, const OperatorStats* o, str name, str kind, bint live):
    """Figures of one operator. Cost: a call per bucket of a partitioned one, unless `live`."""
    cdef int32_t b
    entry = {
        "name": name, "kind": kind, "tuples_in": o.tuples_in, "tuples_out": o.tuples_out,
        "chunks": o.chunks, "slices": o.slices, "worker_ns": o.worker_ns, "max_waited": o.max_waited,
        "reorder_height": load_relaxed(&op.reorder_height), "skipped": load_relaxed(&op.kernel.skipped),
        "first_skipped": skip_first(op.kernel),
        "buckets": op.pq.p if op.kind == PS else 1 if op.keys != NULL else None,
        "estimated_cost_ns": o.c, "estimated_selectivity": o.s,
        "sampled_rows": load_relaxed(&op.sampled_rows), "sampled_ns": load_relaxed(&op.sampled_ns),
        "sampled_max_ns": load_relaxed(&op.sampled_max_ns),
    }
    if live:
        return entry
    if op.kind == PS:
        per_bucket = [op.pq.buckets[b].tuples for b in range(op.pq.p)]
        entry["bucket_tuples_max"] = max(per_bucket)
        entry["bucket_tuples_mean"] = sum(per_bucket) / len(per_bucket)
        if op.kernel.bucket_bytes != NULL:
            entry["state_bytes"] = sum(
                [op.kernel.bucket_bytes(op.kernel, op.pq.buckets[b].state) for b in range(op.pq.p)])
    elif op.kind == SF and op.kernel.bucket_bytes != NULL and op.state != NULL:
        entry["state_bytes"] = op.kernel.bucket_bytes(op.kernel, op.state)
    return entry


cdef dict elastic_figures(Elastic* e):
    """How many workers worked, where the controller set it."""
    mean = e.worker_time / (e.seen - e.began) if e.seen > e.began else float(e.target)
    return {"least": e.least, "mean": mean, "most": e.largest, "last": e.target, "changes": e.changes}


cdef dict run_figures(Runtime* rt, list names, list kinds, int64_t peak, bint live=False):
    """Figures of the run as a dict (ordstream/node/report.py shapes them). peak: the most bytes in flight as
    the feeding thread saw it."""
    cdef int32_t i
    cdef OperatorStats* stats = <OperatorStats*> calloc(rt.n, sizeof(OperatorStats))
    if stats == NULL:
        raise MemoryError
    stats_now(rt, stats)
    try:
        operators = [operator_figures(&rt.operators[i], &stats[i], names[i], kinds[i],
                                      live) for i in range(rt.n)]
    finally:
        free(stats)
    return {
        "operators": operators,
        "elastic": elastic_figures(&rt.elastic) if rt.adaptive else None,
        "decisions": rt.scheduler.decisions, "aged": rt.scheduler.aged,
        "throttled": rt.ingress.throttle_count, "parks": load_relaxed(&rt.parks),
        "missed_wakeups": load_relaxed(&rt.missed), "chunk_rows": load_relaxed(&rt.ingress.target_rows),
        "time_punctuations": rt.egress.markers_time, "snapshot_markers": rt.egress.markers_snapshot,
        "tuples": load_relaxed(&rt.ingress.issued_serial) - rt.ingress.base
        - rt.ingress.marks * mark_serials(),
        "rows_out": load_relaxed(&rt.egress.rows_out),
        "emitted_serial": load_relaxed(&rt.ingress.emitted_serial),
        "chunks_issued": load_relaxed(&rt.ingress.issued_chunks), "bytes": load_relaxed(&rt.pool.bytes),
        "peak_bytes": max(peak, load_relaxed(&rt.egress.peak)),
    }


cdef list first_skips(Runtime* rt, list names):
    """(operator, serial, whether it is a step of the final flush, FailureCode, text) of the first row that
    each operator skipped."""
    cdef int32_t i
    found = []
    for i in range(rt.n):
        first = skip_first(rt.operators[i].kernel)
        if first is not None:
            found.append((names[i], *first))
    return found


cdef object markers(Runtime* rt):
    """Latency markers, an int64 array of four columns: serial, processing ns, end-to-end ns, time at the
    egress by now_ns; in order."""
    cdef int64_t i
    cdef int64_t[:, ::1] into
    found = np.empty((rt.egress.nsamples, 4), dtype=np.int64)
    into = found
    for i in range(rt.egress.nsamples):
        into[i, 0] = rt.egress.samples[i].serial
        into[i, 1] = rt.egress.samples[i].processing_ns
        into[i, 2] = rt.egress.samples[i].end_to_end_ns
        into[i, 3] = rt.egress.samples[i].emitted_ns
    return found


cdef list flush_steps(Runtime* rt):
    """Per operator: None, or (first serial, ends as an int64 array, bytes) of the steps of its final flush
    (steps.pxd). Complete for every operator whose flushed rows the reader has taken."""
    cdef StepLog* log
    cdef int32_t i
    found = []
    for i in range(rt.n):
        log = &rt.operators[i].steps
        # pairs with store_release in complete_punctuation
        if load_acquire(&log.published) == 0 or log.n == 0:
            found.append(None)
            continue
        ends = np.frombuffer((<char*> log.ends)[:log.n * 8], dtype=np.int64)
        found.append((log.first_serial, ends, log.bytes[:log.size]))
    return found


cdef list mark_steps(Runtime* rt, list names):
    """(operator, first serial, ends as an int64 array, bytes) of the steps of marks that came with the rows
    (steps.pxd, c), and were not taken before: those of all rows that the reader has taken. Their order may
    be any."""
    cdef MarkSteps* one = mark_steps_take(&rt.run.mark_steps)
    cdef MarkSteps* following
    found = []
    while one != NULL:
        following = one.next
        if one.log.n:
            ends = np.frombuffer((<char*> one.log.ends)[:one.log.n * 8], dtype=np.int64)
            found.append((names[one.index], one.log.first_serial, ends, one.log.bytes[:one.log.size]))
        steps_free(&one.log)
        free(one)
        one = following
    return found


def left_marks(run):
    """left_marks.left_marks_taken of a Run, until it is closed. The reading thread."""
    cdef Runtime* rt = <Runtime*> PyCapsule_GetPointer(run.node(), b"ordstream.Runtime")
    return left_marks_taken(&rt.egress.left_marks)


cdef object failing_row(Runtime* rt, list operators, const Layout* out_layout, schema):
    """As Run.failing_row."""
    cdef Chunk* c = rt.egress.failed
    cdef KernelOwner owner
    cdef const Layout* layout = out_layout
    cdef Output* o
    if c == NULL or c.n != 1 or (rt.egress.failed_operator < 0 and rt.egress.failed_operator != -3):
        return None
    if rt.egress.failed_operator >= 0:
        owner = operators[rt.egress.failed_operator].kernel
        layout = owner.kernel.input
    o = output_new(layout, 4, False)
    if o == NULL or output_append(o, c, 0, 1) < 0:
        raise MemoryError
    if o.rows == 0:                                           # more than 2 GiB
        output_free(o)
        return None
    return output_export(o, schema)
