"""The story model in PyTorch: Qwen3 (https://arxiv.org/abs/2505.09388), with the biases of Q, K
and V that Qwen2 has. Bias, then QK-norm, then RoPE: engine/ARITHMETIC.md."""
import math

import torch
from torch import nn
from torch.nn import functional

VOCAB = 1024
CONTEXT = 256
DIM = 128
FFN = 384
LAYERS = 4
HEADS = 8
KV_HEADS = 2
HEAD_DIM = 32
EPS = 1e-6
THETA = 100000.0


class RmsNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * self.weight


def rotations():
    """[CONTEXT, HEAD_DIM / 2] cosines and sines."""
    frequencies = THETA ** (-torch.arange(0, HEAD_DIM, 2).double() / HEAD_DIM)
    angles = torch.arange(CONTEXT).double()[:, None] * frequencies
    return angles.cos().float(), angles.sin().float()


def rotate(x, cos, sin):
    """x is [..., positions, HEAD_DIM]; element i turns with element i + HEAD_DIM / 2."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm = RmsNorm(DIM)
        self.attn_q = nn.Linear(DIM, HEADS * HEAD_DIM)
        self.attn_k = nn.Linear(DIM, KV_HEADS * HEAD_DIM)
        self.attn_v = nn.Linear(DIM, KV_HEADS * HEAD_DIM)
        self.attn_q_norm = RmsNorm(HEAD_DIM)
        self.attn_k_norm = RmsNorm(HEAD_DIM)
        self.attn_output = nn.Linear(HEADS * HEAD_DIM, DIM, bias=False)
        self.ffn_norm = RmsNorm(DIM)
        self.ffn_gate = nn.Linear(DIM, FFN, bias=False)
        self.ffn_up = nn.Linear(DIM, FFN, bias=False)
        self.ffn_down = nn.Linear(FFN, DIM, bias=False)

    def begin_by_copying(self):
        """The output matrix is the value matrix turned around, so that a head adds the tokens that
        it looks at: https://arxiv.org/abs/2305.09828 starts from the same kind of product."""
        with torch.no_grad():
            values = nn.init.orthogonal_(self.attn_v.weight, gain=0.2)
            heads = values.view(KV_HEADS, HEAD_DIM, DIM).repeat_interleave(HEADS // KV_HEADS, 0)
            self.attn_output.weight.copy_(heads.reshape(HEADS * HEAD_DIM, DIM).t())

    def forward(self, x, cos, sin, mask):
        batch, length, _ = x.shape
        h = self.attn_norm(x)

        def split(y, heads):  # [batch, heads, length, HEAD_DIM]
            return y.view(batch, length, heads, HEAD_DIM).transpose(1, 2)

        q = rotate(self.attn_q_norm(split(self.attn_q(h), HEADS)), cos, sin)
        k = rotate(self.attn_k_norm(split(self.attn_k(h), KV_HEADS)), cos, sin)
        v = split(self.attn_v(h), KV_HEADS)
        # Query heads that follow one another share a KV head: their rows lie below one another.
        group = HEADS // KV_HEADS
        q = q.reshape(batch, KV_HEADS, group * length, HEAD_DIM)
        scores = (q / math.sqrt(HEAD_DIM)) @ k.transpose(-1, -2)
        scores = scores.view(batch, HEADS, length, length) + mask
        weights = torch.softmax(scores, -1).view(batch, KV_HEADS, group * length, length)
        out = (weights @ v).view(batch, HEADS, length, HEAD_DIM)
        x = x + self.attn_output(out.transpose(1, 2).reshape(batch, length, HEADS * HEAD_DIM))
        h = self.ffn_norm(x)
        return x + self.ffn_down(functional.silu(self.ffn_gate(h)) * self.ffn_up(h))


class Story(nn.Module):
    def __init__(self):
        super().__init__()
        self.token_embd = nn.Embedding(VOCAB, DIM)  # the head, too
        self.blk = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.output_norm = RmsNorm(DIM)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deep = name.endswith(("attn_output.weight", "ffn_down.weight"))
                nn.init.normal_(parameter, std=0.05 / math.sqrt(2 * LAYERS if deep else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        for layer in self.blk:
            layer.begin_by_copying()
        self.cos, self.sin = rotations()

    def forward(self, ids):
        length = ids.shape[1]
        mask = torch.full((length, length), -math.inf).triu(1)
        x = self.token_embd(ids)
        for layer in self.blk:
            x = layer(x, self.cos[:length], self.sin[:length], mask)
        return self.output_norm(x) @ self.token_embd.weight.t()

    def losses(self, rows):
        """Nats of each target of rows [count, length + 1]; of those below 0 there is none: 0."""
        logits = self.forward(rows[:, :-1].clamp(min=0))
        return functional.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten(),
                                        ignore_index=-1, reduction="none").view(len(rows), -1)
