"""Tables: counts of the cells of a domain."""
