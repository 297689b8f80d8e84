# for: none


class Core(AttentionCore):
    """Every token keeps its own value."""

    def forward(self, q, k, v, valid, carry):
        return v
