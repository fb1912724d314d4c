"""The rules of the house, read from the source: imports, sizes, names, forbidden words."""
