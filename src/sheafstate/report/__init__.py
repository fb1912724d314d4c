"""Figures and one page from the result files of a run; see ``schema.py`` for the files and ``html.py`` for the page.

Reads files and nothing else: no model, no torch, so that a figure can be drawn again without a run.
"""
