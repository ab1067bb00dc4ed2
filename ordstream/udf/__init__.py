"""Users' functions: called row by row, compiled by Numba or native, sent to another process."""
