"""Sketches, POSG, DKG's and LAS's inner loops."""
