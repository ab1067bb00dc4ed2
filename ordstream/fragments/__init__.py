"""A plan over several nodes: which operators run together, how rows go from one group to the next, node
processes.
"""
