"""Balance between nodes: sketches of a stream, and groupings that send its tuples to instances of an
operator.
"""
