"""The layer, one file per letter of the tuple (C, J, F, Φ, G, E, R); ``block.py`` joins them."""
