"""Test doors, benchmark kernels and the simulator: built in a checkout, not part of a wheel."""
