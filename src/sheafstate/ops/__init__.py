"""Pure functions on tensors: fast paths, each beside a reference twin that is a loop over the equation."""
