"""One file per operator (or close family): everything that the operator knows of itself."""
