# for: sparse-fixed, sparse-strided


class Core(AttentionCore):
    """Softmax over a token's block and the summaries, the last places of all blocks (fixed), or over the places less
    than `stride` away and those a multiple of it away (strided); with head_split a set for each half of the heads."""

    def forward(self, q, k, v, valid, carry):
        stride, apart = ATTENTION.stride, places_apart(q[:, :, MODEL.pinned:])
        if ATTENTION.name == "sparse-strided":
            near, far = apart.abs() < stride, apart % stride == 0
        else:
            places = torch.arange(len(apart), device=q.device)
            near = places[:, None] // stride == places // stride
            far = places % stride >= stride - ATTENTION.summary
            if ATTENTION.summary_first:
                far = far | (places % stride == 0)
            far = far.expand(len(apart), -1)
        both = near | far
        if ATTENTION.head_split:
            first = torch.arange(self.heads, device=q.device) < (self.heads + 1) // 2
            both = torch.where(first[:, None, None], near, far)
        return self.softmax(q, k, v, valid, beside_pinned(q, both))
