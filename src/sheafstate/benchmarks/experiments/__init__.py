"""Experiments as one YAML file: what is missing is run, a record a run is kept, tables are drawn from the records."""
