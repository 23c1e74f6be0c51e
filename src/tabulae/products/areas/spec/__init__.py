"""[geography] of a spec: its sections, its files, and what they say together."""
