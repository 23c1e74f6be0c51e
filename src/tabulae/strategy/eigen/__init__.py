"""The Eigen-Design mechanism: optimal weights for a set of design queries, and the sets to choose from."""
