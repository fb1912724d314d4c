"""Write text with transformers' pipeline: several prompts at a time, stop strings, and token by token.

python examples/generate_with_pipeline.py runs/demo
"""

import sys
from threading import Thread

from transformers import TextIteratorStreamer, pipeline

import sheafstate  # noqa: F401  registers the model with the Auto classes

folder = sys.argv[1] if len(sys.argv) > 1 else "runs/demo"
write = pipeline("text-generation", model=folder, device="cpu")
greedy = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": write.tokenizer.pad_token_id}

# prompts of unlike length share a batch: they are padded on the left, which changes nothing
prompts = ["ROMEO:\n", "JULIET:\nO gentle", "To"]
together = write(prompts, batch_size=3, return_full_text=False, **greedy)
for prompt, [written] in zip(prompts, together, strict=True):
    print(repr(prompt + written["generated_text"]))
    assert write(prompt, return_full_text=False, **greedy) == [written]

# a stop string ends the text with its first occurrence
text = together[0][0]["generated_text"]
stop = next(character for character in reversed(text) if character.isascii())
stopped = write(prompts[0], return_full_text=False, stop_strings=[stop], tokenizer=write.tokenizer, **greedy)
assert stopped[0]["generated_text"] == text[: text.index(stop) + 1]

# a streamer hands on each piece as it is written
streamer = TextIteratorStreamer(write.tokenizer, skip_prompt=True)
inputs = write.tokenizer(prompts[0], return_tensors="pt")
thread = Thread(target=write.model.generate, kwargs={**inputs, **greedy, "streamer": streamer})
thread.start()
pieces = list(streamer)
thread.join()
print(f"{len(pieces)} pieces: {''.join(pieces)!r}")
assert "".join(pieces) == text
