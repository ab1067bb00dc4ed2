"""Where the output of a stream goes, one file per sink."""
