# for: blockwise


class Core(AttentionCore):
    """Softmax over one block of keys: each head has a shift s, and the queries of block a read block a + s, in a circle
    (causal: block a - s)."""

    def shifts(self):
        """One for each head, as many heads for each as the paper has."""
        blocks = min(ATTENTION.blocks, self.heads)
        each = max(1, min(math.floor(self.heads / 6 + 0.5), (self.heads - 1) // (blocks - 1))) if blocks > 1 else 0
        return [0] * (self.heads - each * (blocks - 1)) + [shift for shift in range(1, blocks) for _ in range(each)]

    def forward(self, q, k, v, valid, carry):
        places = torch.arange(q.size(2) - MODEL.pinned, device=q.device)
        block = places // -(-len(places) // ATTENTION.blocks)
        shifts = torch.tensor(self.shifts(), device=q.device)[:, None]
        read = block - shifts if MODEL.causal else (block + shifts) % (block[-1] + 1)  # [h,m]
        return self.softmax(q, k, v, valid, beside_pinned(q, read[:, :, None] == block))
