"""Makes model files of what train.py left.

    write_gguf.py FOLDER F32_FILE Q8_0_FILE

Prints the SHA-256 of both. The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md,
version 3. Weights are rounded to what BF16 and F16 both hold, so that 16-bit copies of the F32 file
lose nothing and the file packs to half its size; the Q8_0 file is made of the rounded ones.
"""
import hashlib
import json
import os
import struct
import sys

import numpy
import torch

import bpe
import model

UINT32, FLOAT32, BOOL, STRING, ARRAY, INT32 = 4, 6, 7, 8, 9, 5
F32, Q8_0 = 0, 8
ALIGNMENT = 32


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, value):
    """One pair of metadata. A list is an array of `kind`."""
    def element(x):
        if kind == STRING:
            return text(x)
        return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], x)
    if isinstance(value, list):
        head = struct.pack("<IIQ", ARRAY, kind, len(value))
        return text(key) + head + b"".join(map(element, value))
    return text(key) + struct.pack("<I", kind) + element(value)


def metadata(tokens, name):
    def key(suffix):
        return "qwen3." + suffix
    kinds = [3] + [1] * (model.VOCAB - 1)  # control, then normal
    merges = [left + " " + right for left, right in tokens.merges]
    return [
        entry("general.architecture", STRING, "qwen3"),
        entry("general.name", STRING, name),
        entry("general.license", STRING, "apache-2.0"),
        entry(key("context_length"), UINT32, model.CONTEXT),
        entry(key("embedding_length"), UINT32, model.DIM),
        entry(key("block_count"), UINT32, model.LAYERS),
        entry(key("feed_forward_length"), UINT32, model.FFN),
        entry(key("attention.head_count"), UINT32, model.HEADS),
        entry(key("attention.head_count_kv"), UINT32, model.KV_HEADS),
        entry(key("attention.key_length"), UINT32, model.HEAD_DIM),
        entry(key("attention.value_length"), UINT32, model.HEAD_DIM),
        entry(key("rope.dimension_count"), UINT32, model.HEAD_DIM),
        entry(key("rope.freq_base"), FLOAT32, model.THETA),
        entry(key("attention.layer_norm_rms_epsilon"), FLOAT32, model.EPS),
        entry(key("vocab_size"), UINT32, model.VOCAB),
        entry("tokenizer.ggml.model", STRING, "gpt2"),
        entry("tokenizer.ggml.pre", STRING, "gpt-2"),
        entry("tokenizer.ggml.tokens", STRING, tokens.tokens),
        entry("tokenizer.ggml.token_type", INT32, kinds),
        entry("tokenizer.ggml.merges", STRING, merges),
        entry("tokenizer.ggml.bos_token_id", UINT32, 0),
        entry("tokenizer.ggml.eos_token_id", UINT32, 0),
        entry("tokenizer.ggml.add_bos_token", BOOL, True),
        entry("tokenizer.ggml.add_eos_token", BOOL, False),
    ]


def round_weights(values):
    """To the nearest BF16, ties to even, then to a multiple of 2^-24, F16's smallest step."""
    bits = values.astype("<f4").view("<u4").astype(numpy.uint64)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    rounded = bits.astype("<u4").view("<f4")
    rounded = (numpy.round(rounded.astype("<f8") * 2.0**24) / 2.0**24).astype("<f4")
    if not (rounded.astype("<f2").astype("<f4") == rounded).all():
        raise ValueError("a weight is outside of what F16 holds")
    return rounded + numpy.float32(0)  # no negative zero


def quantize(values):
    """Q8_0, as ggml's quantize_row_q8_0_ref: the scale exact while codes are made."""
    blocks = values.reshape(-1, 32)
    scales = numpy.abs(blocks).max(1, keepdims=True) / numpy.float32(127)
    inverse = numpy.zeros_like(scales)
    numpy.divide(numpy.float32(1), scales, out=inverse, where=scales != 0)
    scaled = numpy.clip(blocks * inverse, -127, 127).astype("<f8")
    codes = numpy.trunc(scaled + numpy.copysign(0.5, scaled)).astype("i1")  # halves away from 0
    return b"".join(scale.astype("<f2").tobytes() + row.tobytes()
                    for scale, row in zip(scales, codes))


def tensors(state):
    """(name, matrix or vector), in the order in which a step reads them."""
    yield "token_embd.weight", state["token_embd.weight"]
    for name, values in state.items():
        if name.startswith("blk."):
            yield name, values
    yield "output_norm.weight", state["output_norm.weight"]


def image(tokens, state, name, quantized):
    pairs = metadata(tokens, name)
    infos, data, count = [], b"", 0
    for tensor, values in tensors(state):
        pack = quantized and values.ndim == 2
        infos.append(text(tensor) + struct.pack("<I", values.ndim) +
                     b"".join(struct.pack("<Q", n) for n in reversed(values.shape)) +
                     struct.pack("<IQ", Q8_0 if pack else F32, len(data)))
        data += quantize(values) if pack else values.tobytes()
        data += bytes(-len(data) % ALIGNMENT)
        count += 1
    head = (b"GGUF" + struct.pack("<IQQ", 3, count, len(pairs)) + b"".join(pairs) +
            b"".join(infos))
    return head + bytes(-len(head) % ALIGNMENT) + data


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    with open(os.path.join(sys.argv[1], "tokenizer.json"), encoding="utf-8") as file:
        tokens = bpe.Bpe([tuple(pair) for pair in json.load(file)["merges"]])
    state = torch.load(os.path.join(sys.argv[1], "weights.pt"))
    state = {name: round_weights(values.numpy()) for name, values in state.items()}
    for path, quantized in ((sys.argv[2], False), (sys.argv[3], True)):
        made = image(tokens, state, "lockstep story", quantized)
        with open(path, "wb") as out:
            out.write(made)
        print(f"{hashlib.sha256(made).hexdigest()} {path}, {len(made)} bytes")


if __name__ == "__main__":
    main()
