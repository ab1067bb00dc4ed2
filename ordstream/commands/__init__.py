"""The commands of the command line: `generate` writes data, `run` runs queries (the demo too) on
`engines`.
"""
