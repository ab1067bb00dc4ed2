"""How deep types may be nested."""

# A value is read and written by functions that call themselves for what is inside; Arrow's streams, files of
# state among them, have 64 levels, of which a state takes some. A map is two: entries, and what is in them.
DEEPEST = 60
