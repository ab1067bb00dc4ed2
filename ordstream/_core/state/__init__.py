"""Key records, the keyed maps, and what operators keep in them."""
