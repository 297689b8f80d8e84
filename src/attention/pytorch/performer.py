# for: performer


class Core(AttentionCore):
    """FAVOR+: kernel attention with phi(x) = exp(omega x' - |x'|^2 / 2 - c) + 1e-4, x' = x / d^(1/4). The stabiliser c
    is the largest omega x' of a query, or of all keys (causal: of the keys so far)."""

    def make(self):
        self.omega = f"performer_layer{self.layer}_omega"
        self.share_buffer(self.omega, ATTENTION.features, MODEL.head_dim)

    def forward(self, q, k, v, valid, carry):
        omega, floor, values = getattr(self.shared[0], self.omega), 1e-4, with_count(v, valid)
        scale = q.size(-1) ** (-0.5 if ATTENTION.double_scale else -0.25)

        def scores(x):  # omega x' and what its largest is, with |x'|^2 / 2
            x = x * scale
            found = x @ omega.T
            return found, found.amax(-1, keepdim=True), x.square().sum(-1, keepdim=True) / 2

        found, largest, half = scores(q)
        phi_q = torch.exp(found - half - largest) + floor
        found, largest, half = scores(zero_padding(k, valid))
        largest = largest.masked_fill(~valid[:, None, :, None], -1e30)
        largest = largest.cummax(2)[0] if MODEL.causal else largest.amax(2, keepdim=True)
        peaks = torch.exp(found - (half + largest).masked_fill(~valid[:, None, :, None], 0))
        if not MODEL.causal:
            return quotient(phi_q @ ((peaks + floor).transpose(-1, -2) @ values))
        # Row i has the stabiliser of the keys up to i, key j that of those up to j.
        shift = torch.exp((largest.transpose(-1, -2) - largest).clamp_max(0))
        weights = phi_q @ peaks.transpose(-1, -2) * shift + floor * phi_q.sum(-1, keepdim=True)
        return quotient(torch.tril(weights) @ values)
