"""The encoder of the mlpen code line and a causal decoder in PyTorch, with the attentions that the program is compared with.

Written from the papers and definitions the way code of this field is: masks by arithmetic, feature maps as operations of
their own, explicit attention weights. Parameters have the names that docs/weights.md gives them, so that weights can
be exchanged. It computes what `xformer` computes; peers_test.py shows that.
"""

import contextlib
import math

import torch
import torch.nn.functional as F
from torch import nn

import more_models


class Softmax(nn.Module):
    """softmax(Q K^T / sqrt(d)) V with its [n, n] weights."""

    def __init__(self, sizes, shared, layer):
        super().__init__()
        self.dropout = nn.Dropout(sizes.attention_dropout)
        later = torch.ones(sizes.length, sizes.length, dtype=torch.bool).triu(1) if sizes.causal else None
        self.register_buffer("later", later, persistent=False)

    def forward(self, q, k, v, mask):
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        if self.later is None:
            scores = scores - 1e6 * (1 - mask[:, None, None, :])
        else:
            scores = scores.masked_fill(self.later, -torch.inf)
        return torch.matmul(self.dropout(torch.softmax(scores, dim=-1)), v)


class FusedSoftmax(nn.Module):
    """The same by PyTorch's own operator, without a mask where every token is valid."""

    def __init__(self, sizes, shared, layer):
        super().__init__()
        self.dropout, self.all_valid, self.causal = sizes.attention_dropout, sizes.all_valid, sizes.causal

    def forward(self, q, k, v, mask):
        allowed = None if self.all_valid or self.causal else mask[:, None, None, :].bool()
        dropout = self.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, allowed, dropout, is_causal=self.causal)


class Linformer(nn.Module):
    """softmax(Q (E K)^T / sqrt(d)) (E V): one E [h, k, N] for all layers, keys and values."""

    def __init__(self, sizes, shared, layer):
        super().__init__()
        rows = min(256, sizes.length)
        if not hasattr(shared, "linformer_e"):
            shared.linformer_e = nn.Parameter(torch.randn(sizes.heads, rows, sizes.length) / math.sqrt(rows))
        self.shared = [shared]  # in a list: the module has its place in the model already
        self.dropout = nn.Dropout(sizes.attention_dropout)

    def forward(self, q, k, v, mask):
        e = self.shared[0].linformer_e
        k = torch.matmul(e, k * mask[:, None, :, None])
        v = torch.matmul(e, v * mask[:, None, :, None])
        weights = torch.softmax(torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1)), dim=-1)
        return torch.matmul(self.dropout(weights), v)


class Performer(nn.Module):
    """FAVOR+ with 256 positive orthogonal features of the softmax kernel."""

    def __init__(self, sizes, shared, layer):
        super().__init__()
        self.name, self.shared = f"performer_layer{layer}_omega", [shared]
        d = sizes.head_dim
        blocks = [torch.linalg.qr(torch.randn(d, d)).Q.t() for _ in range(math.ceil(256 / d))]
        shared.register_buffer(self.name, torch.cat(blocks)[:256] * torch.randn(256, d).norm(dim=1, keepdim=True))

    def features(self, x, dims):
        x = x * x.size(-1) ** -0.25
        omega = getattr(self.shared[0], self.name)
        scores = torch.einsum("bhnd,md->bhnm", x, omega)
        diagonal = (x**2).sum(dim=-1, keepdim=True) / 2
        largest = torch.amax(scores, dim=dims, keepdim=True).detach()
        return omega.size(0) ** -0.5 * (torch.exp(scores - diagonal - largest) + 1e-4)

    def forward(self, q, k, v, mask):
        valid = mask[:, None, :, None]
        q = self.features(q, -1)
        k = self.features(k * valid, (-1, -2)) * valid
        denominator = torch.einsum("bhnm,bhm->bhn", q, k.sum(dim=-2))
        context = torch.einsum("bhnm,bhnd->bhmd", k, v * valid)
        return torch.einsum("bhnm,bhmd->bhnd", q, context) / denominator.unsqueeze(-1)


class Linear(nn.Module):
    """Kernel attention with the features elu + 1; causal in chunks of 64, with sums of the chunks before. Sums over thousands of
    keys overflow fp16, so keys are smaller there, which the quotient does not see."""

    def __init__(self, sizes, shared, layer):
        super().__init__()
        self.causal = sizes.causal
        if self.causal and sizes.length % 64:
            raise SystemExit(f"linear: expected a length in chunks of 64, got {sizes.length}")

    @staticmethod
    def small(x, like):
        return x / x.size(-2) ** 0.5 if like.dtype == torch.float16 else x

    @staticmethod
    def before(totals):
        """[b, h, chunks, ...] -> sums over the chunks before each."""
        return totals.cumsum(dim=2) - totals

    def by_chunks(self, q, k, v):
        q, k, v = (x.unflatten(2, (-1, 64)) for x in (F.elu(q) + 1, self.small(F.elu(k) + 1, k), v))
        within = torch.matmul(q, k.transpose(-1, -2)).tril()
        context = self.before(torch.matmul(k.transpose(-1, -2), v))
        keys = self.before(k.sum(dim=-2, keepdim=True))
        denominator = within.sum(dim=-1, keepdim=True) + torch.matmul(q, keys.transpose(-1, -2)) + 1e-6
        return ((torch.matmul(within, v) + torch.matmul(q, context)) / denominator).flatten(2, 3)

    def forward(self, q, k, v, mask):
        if self.causal:
            return self.by_chunks(q, k, v)
        valid = mask[:, None, :, None]
        q = F.elu(q) + 1
        k = (F.elu(k) + 1) * self.small(valid, k)
        context = torch.matmul(k.transpose(-2, -1), v * valid)
        denominator = torch.matmul(q, k.sum(dim=-2).unsqueeze(-1)) + 1e-6
        return torch.matmul(q, context) / denominator


class Nystromformer(nn.Module):
    """64 landmarks, the means of segments, six steps towards the pseudo-inverse, a convolution of 35 values."""

    float_inverse = False  # whatever autocast says: as the program has it, whose products the floor is of

    def __init__(self, sizes, shared, layer):
        super().__init__()
        if sizes.length % 64 or sizes.length == 64:
            raise SystemExit(f"nystromformer: expected a length of several times its 64 landmarks, got {sizes.length}")
        self.conv = nn.Parameter(torch.empty(sizes.heads, 1, 35, 1).uniform_(-(35**-0.5), 35**-0.5))
        self.dropout = nn.Dropout(sizes.attention_dropout)

    @staticmethod
    def inverse(f2):
        one = torch.eye(f2.size(-1), device=f2.device)
        z = f2.transpose(-1, -2) / f2.sum(dim=-2).amax(dim=-1)[:, :, None, None]
        for _ in range(6):
            near_one = torch.matmul(f2, z)
            z = torch.matmul(0.25 * z, 13 * one - torch.matmul(
                near_one, 15 * one - torch.matmul(near_one, 7 * one - near_one)))
        return z

    def forward(self, q, k, v, mask):
        valid = mask[:, None, :, None]
        b, h, n, d = q.shape
        q, k, v = q * valid / d**0.25, k * valid / d**0.25, v * valid
        short_q, short_k = q.reshape(b, h, 64, n // 64, d).mean(dim=-2), k.reshape(b, h, 64, n // 64, d).mean(dim=-2)
        f1 = torch.softmax(torch.matmul(q, short_k.transpose(-1, -2)), dim=-1)
        f2 = torch.softmax(torch.matmul(short_q, short_k.transpose(-1, -2)), dim=-1)
        f3 = torch.softmax(torch.matmul(short_q, k.transpose(-1, -2)) - 1e6 * (1 - mask[:, None, None, :]), dim=-1)
        with torch.autocast(q.device.type, enabled=False) if self.float_inverse else contextlib.nullcontext():
            inverse = self.inverse(f2.float() if self.float_inverse else f2)
        mixed = torch.matmul(torch.matmul(self.dropout(f1), inverse), torch.matmul(self.dropout(f3), v))
        return mixed + F.conv2d(v, self.conv, padding=(17, 0), groups=h)


class NoAttention(nn.Module):
    """Every token keeps its own value."""

    def __init__(self, sizes, shared, layer):
        super().__init__()

    def forward(self, q, k, v, mask):
        return v


class MultiHead(nn.Module):
    def __init__(self, core, sizes, shared, layer):
        super().__init__()
        inner = sizes.heads * sizes.head_dim
        self.heads, self.head_dim = sizes.heads, sizes.head_dim
        self.query, self.key, self.value = (nn.Linear(sizes.dim, inner) for _ in range(3))
        self.core = core(sizes, shared, layer)
        self.out = nn.Linear(inner, sizes.dim)

    def forward(self, x, mask):
        b, n, _ = x.shape
        q, k, v = (map_(x).view(b, n, self.heads, self.head_dim).transpose(1, 2)
                   for map_ in (self.query, self.key, self.value))
        return self.out(self.core(q, k, v, mask).transpose(1, 2).reshape(b, n, self.heads * self.head_dim))


class Reformer(nn.Module):
    """LSH attention of the transformers package: two rounds, chunks of 64 that see the chunk before."""

    def __init__(self, core, sizes, shared, layer):
        super().__init__()
        import transformers
        from transformers.models.reformer.modeling_reformer import LSHSelfAttention
        # As many buckets as the package itself would choose at the first forward pass.
        buckets = 2 ** int(math.log2(2 * max(sizes.length // 64, 1)))
        config = transformers.ReformerConfig(
            attn_layers=["lsh"], attention_head_size=sizes.head_dim, hidden_size=sizes.dim, num_hashes=2,
            num_attention_heads=sizes.heads, axial_pos_embds=False, lsh_attn_chunk_length=64, num_buckets=buckets,
            lsh_num_chunks_before=1, lsh_num_chunks_after=0, is_decoder=False, max_position_embeddings=sizes.length,
            lsh_attention_probs_dropout_prob=sizes.attention_dropout)
        self.attention = LSHSelfAttention(config)
        self.out = nn.Linear(sizes.heads * sizes.head_dim, sizes.dim)

    def forward(self, x, mask):
        return self.out(self.attention(hidden_states=x, attention_mask=mask).hidden_states)


ATTENTIONS = {
    "softmax": (MultiHead, Softmax),
    "sdpa": (MultiHead, FusedSoftmax),
    "linformer": (MultiHead, Linformer),
    "performer": (MultiHead, Performer),
    "linear": (MultiHead, Linear),
    "nystromformer": (MultiHead, Nystromformer),
    "reformer": (Reformer, None),
    "none": (MultiHead, NoAttention),
    "combiner-fixed": (MultiHead, more_models.CombinerFixed),
    "routing": (MultiHead, more_models.Routing),
    "clustered": (MultiHead, more_models.Clustered),
    "entmax15": (MultiHead, more_models.Entmax15),
}
LAYERS = {"paramixer-chord": more_models.ParamixerChord}  # what is a whole layer, not the attention of one


class Block(nn.Module):
    def __init__(self, attention, sizes, shared, layer):
        super().__init__()
        mixer, core = ATTENTIONS[attention]
        self.mixer_norm = nn.LayerNorm(sizes.dim)
        self.mixer = mixer(core, sizes, shared, layer)
        self.ff_norm = nn.LayerNorm(sizes.dim)
        self.ff = nn.ModuleDict({"in": nn.Linear(sizes.dim, sizes.ff_dim), "out": nn.Linear(sizes.ff_dim, sizes.dim)})
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x, mask, first):
        x = x + self.dropout(self.mixer(self.mixer_norm(x), mask))
        hidden = self.dropout(F.gelu(self.ff["in"](self.ff_norm(x))))
        return x + self.dropout(self.ff["out"](hidden))


class Sizes:
    """Of the protocol mlpen on ListOps, the vocabulary's rows and classes included."""

    dim, heads, head_dim, ff_dim, layers = 64, 2, 32, 128, 2
    vocabulary, rows, classes, classifier_dim, causal = 16, 32, 10, 128, False

    def __init__(self, length, dropout, attention_dropout, all_valid):
        self.length, self.dropout, self.attention_dropout, self.all_valid = length, dropout, attention_dropout, all_valid


class LanguageSizes(Sizes):
    """Of the protocol character-lm on bytes; row 0 of the vocabulary is the padding."""

    dim, heads, head_dim, ff_dim, layers = 256, 4, 64, 1024, 4
    vocabulary, rows, classes, causal = 257, 257, 256, True


class Encoder(nn.Module):
    def __init__(self, attention, sizes):
        super().__init__()
        self.tokens = nn.Parameter(0.02 * torch.randn(sizes.rows, sizes.dim))
        self.positions = nn.Parameter(0.02 * torch.randn(sizes.length, sizes.dim))
        self.shared = nn.Module()
        self.dropout = nn.Dropout(sizes.dropout)
        for layer in range(sizes.layers):
            self.add_module(f"layer{layer}", LAYERS[attention](sizes) if attention in LAYERS else
                            Block(attention, sizes, self.shared, layer))
        self.layers = sizes.layers
        self.norm = nn.Identity() if attention in LAYERS else nn.LayerNorm(sizes.dim)
        self.add_readout(sizes)

    def add_readout(self, sizes):
        self.classifier_in = nn.Linear(sizes.dim, sizes.classifier_dim)
        self.classifier_out = nn.Linear(sizes.classifier_dim, sizes.classes)

    def forward(self, tokens, mask):
        """tokens [b, n], mask [b, n] of ones and zeros -> logits [b, classes]"""
        x = self.dropout(F.embedding(tokens, self.tokens) + self.positions[: tokens.size(1)])
        first = x
        for layer in range(self.layers):
            x = getattr(self, f"layer{layer}")(x, mask, first)
        return self.readout(self.norm(x), mask)

    def readout(self, x, mask):
        pooled = (x * mask[:, :, None]).mean(dim=1)
        return self.classifier_out(F.relu(self.classifier_in(pooled)))

    def extra_loss(self):
        """What attentions add to the loss of the forward pass before."""
        return sum((module.loss for module in self.modules() if isinstance(module, more_models.Routing)), 0.0)


class Decoder(Encoder):
    """Scores every place by the vectors of the embedding: logits [b, n, classes]."""

    def add_readout(self, sizes):
        pass

    def readout(self, x, mask):
        return torch.matmul(x, self.tokens[1:].t())
