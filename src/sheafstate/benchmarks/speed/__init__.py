"""Speed and memory beside the models that people use, every figure a ratio of sides that took turns in one run."""
