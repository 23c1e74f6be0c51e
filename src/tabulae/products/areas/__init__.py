"""Areas: counts of a spine, from the nation to the block."""
