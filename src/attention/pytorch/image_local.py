# for: image-local-1d, image-local-2d


class Core(AttentionCore):
    """Softmax over a block of places and a memory around it, in a row or on a grid."""

    def near(self, places, block, memory):
        """Whether place j is in the block of place i or the memory around it [m,m]."""
        first = places // block * block
        return (places >= first[:, None] - memory) & (places < first[:, None] + block + memory)

    def forward(self, q, k, v, valid, carry):
        places = torch.arange(q.size(2) - MODEL.pinned, device=q.device)
        if ATTENTION.name == "image-local-1d":
            pattern = self.near(places, ATTENTION.block, ATTENTION.memory_length)
        else:
            columns = grid_columns(self)
            pattern = self.near(places // columns, ATTENTION.block_height, ATTENTION.memory_height)
            pattern = pattern & self.near(places % columns, ATTENTION.block_width, ATTENTION.memory_width)
        return self.softmax(q, k, v, valid, beside_pinned(q, pattern))
