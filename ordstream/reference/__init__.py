"""The sequential reference: what every run must output, in values and in order."""
