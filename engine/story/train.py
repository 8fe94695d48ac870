"""Trains the story model.

    train.py SEED STEPS FOLDER

Prints the seed first and the SHA-256 of the weights last; on one thread they are the same every
time on one kind of processor with the same libraries. Writes FOLDER/tokenizer.json and
FOLDER/weights.pt; write_gguf.py makes model files of them.
"""
import hashlib
import json
import math
import os
import sys
import time

import torch

import bpe
import make_corpus
import model

STORIES = 24000
HELD_OUT = 200
BATCH = 4
PEAK_RATE = 3e-3
# A name or a thing that comes back: a token that its story had before, and that few stories have.
RARE = 0.005
RARE_WEIGHT = 5.0


def rows_of(documents, count):
    """[count, CONTEXT + 1]: a story from its beginning, and what of the next ones has room."""
    rows = []
    for first in range(count):
        row, i = [], first
        while len(row) <= model.CONTEXT:
            row += documents[i % len(documents)]
            i += 1
        rows.append(row[:model.CONTEXT + 1])
    return torch.tensor(rows)


def comes_back(rows, documents):
    """[count, CONTEXT] of rows [count, CONTEXT + 1]: which targets are worth remembering for."""
    counts = torch.bincount(torch.tensor([i for d in documents for i in d]),
                            minlength=model.VOCAB)
    rare = (counts < RARE * counts.sum()).tolist()
    marks = []
    for row in rows.tolist():
        seen, mark = set(), []
        for token in row:
            if token == 0:
                seen = set()
            mark.append(rare[token] and token in seen)
            seen.add(token)
        marks.append(mark[1:])
    return torch.tensor(marks)


def held_out_loss(net, documents):
    """Nats a token, the end of each story included, its beginning given."""
    rows = torch.full((len(documents), model.CONTEXT + 1), -1)
    for row, document in zip(rows, documents):
        ids = [*document, 0][:model.CONTEXT + 1]
        row[:len(ids)] = torch.tensor(ids)
    with torch.no_grad():
        total = sum(float(net.losses(row[None]).sum()) for row in rows)
    return total / int((rows[:, 1:] >= 0).sum())


def rate(step, steps):
    warm = min(1.0, (step + 1) / 60)
    return PEAK_RATE * warm * (0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * step / steps)))


def digest_of(net):
    digest = hashlib.sha256()
    for name, tensor in sorted(net.state_dict().items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    seed, steps, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    print(f"seed {seed}, {steps} steps of {BATCH} rows of {model.CONTEXT} tokens", flush=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
    texts = list(make_corpus.stories(seed, STORIES))
    known = set(texts)
    held_out = [t for t in make_corpus.stories(seed + 1, HELD_OUT) if t not in known]
    tokens = bpe.train(texts, model.VOCAB)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as out:
        json.dump({"merges": tokens.merges}, out)
    documents = [[0, *tokens.encode(text)] for text in texts]
    held_out = [[0, *tokens.encode(text)] for text in held_out]
    lengths = [len(document) for document in documents]
    print(f"{len(documents)} stories of {min(lengths)} to {max(lengths)} tokens, "
          f"{sum(lengths) / len(lengths):.0f} on average", flush=True)

    net = model.Story()
    print(f"{sum(p.numel() for p in net.parameters())} parameters", flush=True)
    matrices = [p for p in net.parameters() if p.dim() == 2]
    vectors = [p for p in net.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1},
                                   {"params": vectors, "weight_decay": 0.0}],
                                  lr=PEAK_RATE, betas=(0.9, 0.98))
    rows = rows_of(documents, steps * BATCH)
    marks = comes_back(rows, documents)
    begin = time.time()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        batch = slice(step * BATCH, (step + 1) * BATCH)
        # Products in BF16, which processors with AMX do three times as fast.
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses = net.losses(rows[batch])
        weights = 1 + (RARE_WEIGHT - 1) * marks[batch]
        loss = (losses * weights).sum() / weights.sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0 or step + 1 == steps:
            print(f"step {step}: {float(losses.mean()):.3f} nats a token, "
                  f"{float(losses[marks[batch]].mean()):.3f} of what comes back, "
                  f"{time.time() - begin:.0f} s", flush=True)
    torch.save(net.state_dict(), os.path.join(folder, "weights.pt"))
    print(f"held out: {held_out_loss(net, held_out):.4f} nats a token of "
          f"{sum(map(len, held_out))}")
    print(f"sha256 of the weights {digest_of(net)}")


if __name__ == "__main__":
    main()
