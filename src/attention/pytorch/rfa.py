# for: rfa-gaussian, rfa-arccos
# only: gate=false


class Core(AttentionCore):
    """Kernel attention with random features of unit vectors, scaled by a learned sigma: x' = sigma x / |x|, phi of W x'
    is [sin; cos] or relu."""

    def make(self):
        self.sigma = nn.Parameter(torch.ones(self.heads, MODEL.head_dim))
        for name in ("omega", *(["evaluation"] if ATTENTION.redraw > 0 else [])):
            self.share_buffer(f"rfa_layer{self.layer}_{name}", ATTENTION.features, MODEL.head_dim)

    def forward(self, q, k, v, valid, carry):
        drawn = "omega" if self.training or ATTENTION.redraw == 0 else "evaluation"
        omega = getattr(self.shared[0], f"rfa_layer{self.layer}_{drawn}")

        def phi(x):
            y = x / torch.sqrt(x.square().sum(-1, keepdim=True) + 1e-6) * self.sigma[:, None] @ omega.T
            y = F.relu(y) if ATTENTION.name == "rfa-arccos" else torch.cat([torch.sin(y), torch.cos(y)], -1)
            return y / math.sqrt(ATTENTION.features)

        sums = kernel_sums(phi(q), phi(k), with_count(v, valid))
        if ATTENTION.name == "rfa-arccos":
            return quotient(sums, 1e-7)
        count = sums[..., -1:]  # sines and cosines can cancel
        least = torch.where(count >= 0, 1e-3, -1e-3).to(count.dtype)
        return sums[..., :-1] / torch.where(count.abs() < 1e-3, least, count)
