"""The code that an operator runs on a chunk; a file bears the name of the operator's file in
`ordstream/operators`.
"""
