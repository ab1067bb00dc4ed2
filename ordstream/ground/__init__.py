"""What every other folder may import: types and their storage, order tags, order checks, files written
whole.
"""
