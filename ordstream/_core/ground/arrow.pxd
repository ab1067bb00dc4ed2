"""Crossing Arrow's C data interface, without libarrow: the export of output batches.

Import is in imported_batch.pxd. Facts relied on: ../docs/decisions.md, "Arrow capsules". Release callbacks
may take the GIL themselves, so nothing here holds a core lock over them; our own release callback touches
no Python, but lets go of lent columns, which are the source's to release.
"""
from ordstream._core.ground.output_columns cimport Output

cdef object output_export(Output* o, object schema, object lent=*)    # takes ownership of o
