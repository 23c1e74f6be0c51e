"""Other systems' files: read into runs, and written from releases."""
