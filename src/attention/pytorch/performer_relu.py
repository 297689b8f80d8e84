# for: performer-relu


class Core(AttentionCore):
    """Kernel attention with the features relu(omega x / d^(1/4)) + 1e-3, or relu(x) + 1e-3."""

    def make(self):
        self.omega = f"performer_layer{self.layer}_omega"
        if ATTENTION.kernel == "relu":
            self.share_buffer(self.omega, ATTENTION.features, MODEL.head_dim)

    def forward(self, q, k, v, valid, carry):
        def phi(x):
            if ATTENTION.kernel == "relu":
                x = x * x.size(-1) ** -0.25 @ getattr(self.shared[0], self.omega).T
            return F.relu(x) + 1e-3

        return quotient(kernel_sums(phi(q), phi(k), with_count(v, valid)))
