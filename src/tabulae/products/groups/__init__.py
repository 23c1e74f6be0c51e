"""Groups: adaptive tabulation of very many small groups."""
