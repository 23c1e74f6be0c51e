"""Where records are: engines, the coding of values, units."""
