# for: local-block


class Core(AttentionCore):
    """Softmax over the keys of a token's own block."""

    def forward(self, q, k, v, valid, carry):
        places = torch.arange(q.size(2), device=q.device)
        if ATTENTION.glra_strided_blocks:
            block = places % -(-q.size(2) // ATTENTION.block)
        else:
            block = places // ATTENTION.block
        same = block[:, None] == block
        if MODEL.causal:
            same = same & not_later(q)
        return self.softmax(q, k, v, valid, same)
