# for: mrs


BaseCore = Core


class Core(AttentionCore):
    """Multiresolution heads (MrsFormer): each head works on means of so many neighbours as its scale says, and its rows
    are repeated as often."""

    def make(self):
        scales = [ATTENTION.scales[head % len(ATTENTION.scales)] for head in range(self.heads)]
        self.groups = [(scale, [head for head in range(self.heads) if scales[head] == scale])
                       for scale in sorted(set(scales))]
        for scale, heads in self.groups:
            groups = -(-(self.length - MODEL.pinned) // scale)
            core = BaseCore(len(heads), MODEL.pinned + groups, self.layer, self.shared[0], f"scale{scale}_")
            self.add_module(f"scale{scale}", core)

    def forward(self, q, k, v, valid, carry):
        result = torch.zeros_like(v)
        for scale, heads in self.groups:
            (short_q, short), (short_k, _), (short_v, _) = (
                pool(x[:, heads], valid, scale, MODEL.pinned) for x in (q, k, v))
            mixed = getattr(self, f"scale{scale}")(short_q, short_k, short_v, short, carry)
            rest = mixed[:, :, MODEL.pinned:].repeat_interleave(scale, 2)
            result[:, heads] = torch.cat([mixed[:, :, :MODEL.pinned], rest], 2)[:, :, :v.size(2)]
        return result
