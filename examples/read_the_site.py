"""Which relations does a model use in a text, and which of them would a window have held?

python examples/read_the_site.py runs/demo "To be, or not to be, that is the question"
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sheafstate.edges import Band, concatenate, coverage_by_type, edges_by_type, edges_per_token, num_edges

folder = sys.argv[1] if len(sys.argv) > 1 else "runs/demo"
text = sys.argv[2] if len(sys.argv) > 2 else "To be, or not to be, that is the question: " * 4
model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)

ids = tokenizer(text, return_tensors="pt").input_ids
with torch.no_grad():
    layers = model(ids, output_site=True, use_cache=False).site

# every layer has one list of typed edges a row of the batch
relations = concatenate([layer.edges[0] for layer in layers])
strong = relations.select(relations.weights > 0.1)
dense = num_edges(Band.complete(relations.length))

print(f"{relations.length} tokens, {edges_per_token(relations):.1f} earlier tokens read by each")
print(f"{num_edges(relations):,} pairs of {dense:,} are related, {num_edges(strong):,} with a weight above 0.1")
held = coverage_by_type(Band(relations.length, width=16), strong)
for name, count in edges_by_type(strong).items():
    if count:
        print(f"{name:12} {count:6,} strong pairs, {100 * held[name]:5.1f} % of them within 16 tokens")
