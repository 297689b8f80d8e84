# for: explicit-sparse


class Core(AttentionCore):
    """Softmax over the top_k keys that match a row best, or over a share of those it may read where that is more."""

    def forward(self, q, k, v, valid, carry):
        scores = dot(q, k)
        open_keys = valid[:, None, None, :].expand(-1, 1, q.size(2), -1)
        if MODEL.causal:
            open_keys = open_keys & not_later(q)
        scores = scores.masked_fill(~open_keys, -1e30)
        share = torch.ceil(open_keys.sum(-1, keepdim=True).double() * ATTENTION.top_fraction - 1e-9).long()
        rank = share.clamp(min(ATTENTION.top_k, k.size(2)), k.size(2)) - 1
        sorted_scores = scores.sort(-1, descending=True)[0]
        threshold = sorted_scores.gather(-1, rank.expand(-1, self.heads, -1, -1))
        return self.softmax(q, k, v, valid, open_keys & (scores >= threshold))
