# for: adaptively-sparse, entmax15, sparsemax


class Core(AttentionCore):
    """Weights by alpha-entmax in place of softmax: p_j = [1 + b (s_j - max s - t)]_+^(1/b) with b = alpha - 1 and the t
    for which they sum to 1, found by Newton's steps. Alpha is 3/2, 2, or one for each head."""

    def make(self):
        self.learned = ATTENTION.name == "adaptively-sparse" and ATTENTION.learn_alpha
        if self.learned:
            self.alpha_logit = nn.Parameter(torch.zeros(self.heads))

    def alpha(self, like):
        if self.learned:
            return (1 + torch.sigmoid(self.alpha_logit)).clamp(1.01, 2).view(-1, 1, 1)
        fixed = {"entmax15": 1.5, "sparsemax": 2.0}
        return like.new_tensor(fixed[ATTENTION.name] if ATTENTION.name in fixed else ATTENTION.alpha)

    def forward(self, q, k, v, valid, carry):
        scores, alpha = dot(q, k), self.alpha(q)
        if not self.learned and alpha == 1:
            return self.softmax(q, k, v, valid, not_later(q))
        open_keys = valid[:, None, None, :]
        if MODEL.causal:
            open_keys = open_keys & not_later(q)
        scores = scores.masked_fill(~open_keys, -1e30)
        b = alpha - 1
        d = (scores - scores.amax(-1, keepdim=True)) * b

        def weights(shift):
            above = (d - shift + 1).clamp_min(0)
            return above, above ** (1 / b)

        shift = torch.zeros_like(d[..., :1])  # b t
        for _ in range(16):
            above, p = weights(shift)
            slope = torch.where(above > 0, p / above.clamp_min(1e-30), torch.zeros_like(p))
            shift = shift + b * (p.sum(-1, keepdim=True) - 1) / slope.sum(-1, keepdim=True)
        p = weights(shift)[1]
        p = (p / p.sum(-1, keepdim=True)).masked_fill(~open_keys.any(-1, keepdim=True), 0)
        return self.drop(p) @ v
