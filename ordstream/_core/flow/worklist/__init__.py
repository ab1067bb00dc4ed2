"""The three worklists of the ordered paper, section 4: shared, partitioned, hybrid."""
