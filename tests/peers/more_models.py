"""Attentions of the second zoo in PyTorch, as models.py has those of the first: from the papers' definitions, the way
code of this field is written, with parameters and buffers of the names in docs/weights.md.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class ParamixerChord(nn.Module):
    """A whole layer: V <- g(V), then V_i <- sum_p W_ip V_(i + link_p mod n) + V_i for each factor, W = f(X0); links
    0, 1, 2, 4, ..."""

    @staticmethod
    def two_maps(dim, hidden, width):
        return nn.ModuleDict({"in": nn.Linear(dim, hidden), "out": nn.Linear(hidden, width)})

    def __init__(self, sizes):
        super().__init__()
        self.factors = (sizes.length - 1).bit_length()
        steps = torch.tensor([0, *(2**p for p in range(self.factors))])
        links = (torch.arange(sizes.length)[:, None] + steps) % sizes.length  # [n, P]
        self.register_buffer("links", links.flatten(), persistent=False)
        self.value = self.two_maps(sizes.dim, 32, sizes.dim)
        for m in range(self.factors):
            self.add_module(f"factor{m}", self.two_maps(sizes.dim, 32, self.factors + 1))
        self.dropout = nn.Dropout(sizes.attention_dropout)

    def forward(self, x, mask, first):
        def apply(maps, rows):
            return maps["out"](F.gelu(maps["in"](rows)))

        valid = mask[:, :, None]
        v = apply(self.value, x) * valid
        for m in range(self.factors):
            weights = apply(getattr(self, f"factor{m}"), first)  # [b, n, P]
            linked = v.index_select(1, self.links).unflatten(1, weights.shape[1:])  # [b, n, P, e]
            v = (torch.einsum("bnp,bnpe->bne", weights, linked) + v) * valid
        return self.dropout(v)


class CombinerFixed(nn.Module):
    """Own span and, in the same softmax, one key and one value for every other span: the maximum of its keys, and its
    values weighed by the maximum of its queries."""

    def __init__(self, sizes, shared, layer):
        super().__init__()
        self.span = 2 ** math.ceil(math.log2(math.sqrt(sizes.length)))
        self.dropout, self.dropout_of_spans = nn.Dropout(sizes.attention_dropout), nn.Dropout(sizes.attention_dropout)

    def forward(self, q, k, v, mask):
        b, h, n, d = q.shape
        s, t = self.span, -(-n // self.span)
        q, k, v = (F.pad(x, (0, 0, 0, t * s - n)).view(b, h, t, s, d) for x in (q, k, v))
        valid = F.pad(mask, (0, t * s - n)).view(b, 1, t, s)
        closed, span_valid = 1e6 * (1 - valid).unsqueeze(3), valid.amax(dim=-1)  # [b, 1, t, 1, s], [b, 1, t]
        span_q, span_k = (x.masked_fill(valid.unsqueeze(-1) == 0, -1e4).amax(dim=3) * span_valid.unsqueeze(-1)
                          for x in (q, k))
        own = torch.matmul(span_q.unsqueeze(3), k.transpose(-1, -2)) / math.sqrt(d) - closed
        span_v = torch.matmul(self.dropout_of_spans(torch.softmax(own, dim=-1)), v).squeeze(3)
        near = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(d) - closed  # [b, h, t, s, s]
        far = torch.matmul(q.flatten(2, 3), span_k.transpose(-1, -2)).view(b, h, t, s, t) / math.sqrt(d)
        far = far - 1e6 * (1 - span_valid)[:, :, None, None, :] - 1e6 * torch.eye(t, device=q.device).unsqueeze(1)
        weights = self.dropout(torch.softmax(torch.cat([near, far], dim=-1), dim=-1))
        mixed = torch.matmul(weights[..., :s], v).flatten(2, 3)
        return (mixed + torch.matmul(weights[..., s:].flatten(2, 3), span_v))[:, :, :n]


class Routing(nn.Module):
    """Half of the heads are local blocks and their neighbours; the others attend within clusters of the w queries and w
    keys that are nearest to each centroid. Centroids are moving averages, as in the authors' code of a forward pass."""

    decay, commitment = 0.999, 1e-4

    def __init__(self, sizes, shared, layer):
        super().__init__()
        self.near, d = sizes.heads // 2, sizes.head_dim
        far, clusters = sizes.heads - self.near, round(math.sqrt(sizes.length))
        self.members = -(-sizes.length // clusters)
        self.register_buffer("centroid_sum", F.layer_norm(torch.randn(far, clusters, d), (d,)))
        self.register_buffer("centroid_count", torch.ones(far, clusters))
        self.dropout, self.near_dropout = nn.Dropout(sizes.attention_dropout), nn.Dropout(sizes.attention_dropout)
        self.loss = 0.0

    def local(self, q, k, v, mask):
        b, h, n, d = q.shape
        w, t = self.members, -(-n // self.members)
        q = F.pad(q, (0, 0, 0, t * w - n)).view(b, h, t, w, d)

        def beside(x):  # the blocks before, of and behind each: [b, h, t, 3w, d]
            x = F.pad(x, (0, 0, w, t * w - n + w)).unflatten(2, (t + 2, w))
            return torch.cat([x[:, :, i:i + t] for i in range(3)], dim=3)

        scores = torch.matmul(q, beside(k).transpose(-1, -2)) / math.sqrt(d)
        scores = scores - 1e6 * (1 - beside(mask[:, None, :, None]).transpose(-1, -2))
        return torch.matmul(self.near_dropout(torch.softmax(scores, dim=-1)), beside(v)).flatten(2, 3)[:, :, :n]

    @torch.no_grad()
    def statistics(self, vectors, nearest, mask):
        total, count = torch.zeros_like(self.centroid_sum), torch.zeros_like(self.centroid_count)
        for x, which in zip(vectors, nearest):
            chosen = F.one_hot(which, count.size(-1)).to(count.dtype) * mask[:, None, :, None]  # [b, h, n, k]
            total += torch.einsum("bhnk,bhnd->hkd", chosen, x)
            count += chosen.sum(dim=(0, 2))
        self.centroid_sum.lerp_(total, 1 - self.decay)
        self.centroid_count.lerp_(count, 1 - self.decay)

    def learn(self, vectors, centres, mask):
        half = (centres**2).sum(dim=-1).unsqueeze(1) / 2
        nearest = [(torch.matmul(x.detach(), centres.transpose(-1, -2)) - half).argmax(dim=-1) for x in vectors]
        distance, heads = 0.0, torch.arange(centres.size(0), device=mask.device)[:, None]
        for x, which in zip(vectors, nearest):
            distance = distance + ((x - centres[heads, which]) ** 2 * mask[:, None, :, None]).sum()
        self.loss = self.commitment * distance / (len(vectors) * mask.sum() * centres.size(0))
        self.statistics([x.detach() for x in vectors], nearest, mask)

    def forward(self, q, k, v, mask):
        d, count = q.size(-1), self.centroid_count
        total = count.sum(dim=-1, keepdim=True)
        smooth = (count + 1e-5) / (total + count.size(-1) * 1e-5) * total
        centres = self.centroid_sum / smooth.unsqueeze(-1)  # [h, k, d]
        x, y = (F.layer_norm(rows[:, self.near:], (d,), eps=1e-6) for rows in (q, k))
        if self.training:
            self.learn([x, y], centres, mask)
        clusters, w, n = centres.size(1), min(self.members, q.size(2)), q.size(2)
        padded = 1e6 * (1 - mask)[:, None, None, :]

        def chosen(rows):
            scores = torch.matmul(centres, rows.detach().transpose(-1, -2)) - padded  # [b, h, k, n]
            return scores.topk(w, dim=-1).indices.sort(dim=-1).values.flatten(2)  # [b, h, k w]

        def take(rows, places):
            return rows.gather(2, places.unsqueeze(-1).expand(-1, -1, -1, rows.size(-1))).unflatten(2, (clusters, w))

        queries, keys = chosen(x), chosen(y)
        valid = take(mask[:, None, :, None].expand(-1, x.size(1), -1, -1), keys).transpose(-1, -2)  # [b, h, k, 1, w]
        scores = torch.matmul(take(x, queries), take(y, keys).transpose(-1, -2)) / math.sqrt(d) - 1e6 * (1 - valid)
        rows = torch.matmul(self.dropout(torch.softmax(scores, dim=-1)), take(v[:, self.near:], keys)).flatten(2, 3)
        places = queries.unsqueeze(-1)
        found = rows.new_zeros(*x.shape[:2], n, 1).scatter_add(2, places, torch.ones_like(rows[..., :1]))
        mixed = rows.new_zeros(x.shape).scatter_add(2, places.expand_as(rows), rows) / found.clamp_min(1)
        near = (part[:, : self.near] for part in (q, k, v))
        return torch.cat([self.local(*near, mask), mixed], dim=1) if self.near else mixed


class Clustered(nn.Module):
    """Queries in 100 clusters by ten rounds of k-means over 63 bits of their hashes; a cluster's mean query attends for
    all of its members."""

    clusters, bits, rounds = 100, 63, 10

    def __init__(self, sizes, shared, layer):
        super().__init__()
        self.name, self.shared = f"clustered_layer{layer}_planes", [shared]
        shared.register_buffer(self.name, torch.randn(self.bits, sizes.head_dim + 1))
        self.dropout = nn.Dropout(sizes.attention_dropout)

    @torch.no_grad()
    def assign(self, q, mask):
        """The cluster of each query [b, h, n]; bits are 1 and -1, so that the nearest code has the largest product."""
        b, h, n, d = q.shape
        planes, count = getattr(self.shared[0], self.name), mask.sum(dim=-1).long()[:, None]
        clusters = min(self.clusters, n)
        signs = torch.where(torch.matmul(q, planes[:, :d].t()) > planes[:, d], 1.0, -1.0)  # [b, h, n, bits]
        first = (2 * torch.arange(clusters, device=q.device) + 1) * count // (2 * clusters)
        order = torch.argsort(1 - mask, dim=-1, stable=True)
        places = order.gather(-1, first.clamp_max(n - 1))[:, None, :, None].expand(b, h, clusters, self.bits)
        centroids = signs.gather(2, places)
        nearest = torch.matmul(signs, centroids.transpose(-1, -2)).argmax(dim=-1)
        valid = mask[:, None, :, None].to(signs.dtype).expand_as(signs)
        counted = signs * valid
        for _ in range(self.rounds - 1):
            index = nearest.unsqueeze(-1).expand(-1, -1, -1, self.bits)
            ones = torch.zeros_like(centroids).scatter_add(2, index, counted)
            members = torch.zeros_like(centroids).scatter_add(2, index, valid)
            centroids = torch.where(members > 0, torch.where(ones > 0, 1.0, -1.0), centroids)
            nearest = torch.matmul(signs, centroids.transpose(-1, -2)).argmax(dim=-1)
        rank = (mask.cumsum(dim=-1).long() - 1).clamp(0, clusters - 1)  # a cluster for each of a few tokens
        return torch.where((count <= clusters)[:, None], rank[:, None], nearest)

    def forward(self, q, k, v, mask):
        b, h, n, d = q.shape
        own = self.assign(q, mask).unsqueeze(-1)
        valid = mask[:, None, :, None].expand(b, h, n, 1).to(q.dtype)
        none = q.new_zeros(b, h, min(self.clusters, n), d)
        members = none[..., :1].scatter_add(2, own, valid)
        means = none.scatter_add(2, own.expand_as(q), q * valid) / members.clamp_min(1)
        scores = torch.matmul(means, k.transpose(-1, -2)) / math.sqrt(d) - 1e6 * (1 - mask[:, None, None, :])
        mixed = torch.matmul(self.dropout(torch.softmax(scores, dim=-1)), v)
        return mixed.gather(2, own.expand_as(q))


class Entmax15Function(torch.autograd.Function):
    """p = [s / 2 - t]_+^2 that sums to 1 (Peters, Niculae, Martins 2019, algorithm 2): t by sorting the scores."""

    @staticmethod
    def forward(ctx, scores):
        s = (scores - scores.amax(dim=-1, keepdim=True)) / 2
        ordered = s.sort(dim=-1, descending=True).values
        count = torch.arange(1, s.size(-1) + 1, dtype=s.dtype, device=s.device)
        mean = ordered.cumsum(dim=-1) / count
        spread = (ordered**2).cumsum(dim=-1) - count * mean**2
        threshold = mean - ((1 - spread) / count).clamp_min(0).sqrt()
        support = (threshold <= ordered).sum(dim=-1, keepdim=True)
        p = (s - threshold.gather(-1, support - 1)).clamp_min(0) ** 2
        ctx.save_for_backward(p)
        return p

    @staticmethod
    def backward(ctx, gradient):
        (p,) = ctx.saved_tensors
        slope = p.sqrt()
        scaled = gradient * slope
        return scaled - scaled.sum(dim=-1, keepdim=True) / slope.sum(dim=-1, keepdim=True) * slope


class Entmax15(nn.Module):
    """entmax of exponent 3/2 in place of softmax, with its [n, n] weights."""

    def __init__(self, sizes, shared, layer):
        super().__init__()
        self.dropout = nn.Dropout(sizes.attention_dropout)

    def forward(self, q, k, v, mask):
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
        scores = scores - 1e6 * (1 - mask[:, None, None, :])
        # Sums over a row need fp32 also under autocast, which knows that of softmax alone.
        weights = Entmax15Function.apply(scores.float() if scores.dtype == torch.bfloat16 else scores)
        return torch.matmul(self.dropout(weights), v)
