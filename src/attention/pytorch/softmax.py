# for: softmax, softmax-fused


class Core(AttentionCore):
    """softmax(q k^T / sqrt(d)) v."""

    def forward(self, q, k, v, valid, carry):
        return self.softmax(q, k, v, valid, not_later(q))
