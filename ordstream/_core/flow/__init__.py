"""Tuples on their way: ingress, operators and their worklists, reorder buffer, scheduler, worker pool,
egress.
"""
