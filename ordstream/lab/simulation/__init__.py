"""Virtual time: streams of tuples, and operators whose instances execute them, without waiting for
either.
"""
