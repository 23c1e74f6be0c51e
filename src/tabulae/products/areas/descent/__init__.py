"""From the root to the leaves in whole numbers: division, limits, rounding."""
