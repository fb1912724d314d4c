"""Damaged and hostile input for whatever reads a file or a setting: only ``InputError`` may come out."""
