# for: multi-head


class Mixer(nn.Module):
    """Multi-head attention around a core: maps of x [b,n,m] to q, k, v, and of the heads side by side to the output."""

    def __init__(self, layer, shared):
        super().__init__()
        inner, bias = MODEL.heads * MODEL.head_dim, MODEL.attention_bias
        self.query = nn.Linear(MODEL.dim, inner, bias)
        self.key = nn.Linear(MODEL.dim, inner, bias)
        if not Core.values_are_keys:
            self.value = nn.Linear(MODEL.dim, inner, bias)
        self.out = nn.Linear(inner, MODEL.dim, bias)
        self.core = Core(MODEL.heads, MODEL.max_len, layer, shared)

    def forward(self, x, valid, carry):
        def heads(rows):  # [b,n,h d] -> [b,h,n,d]
            return rows.unflatten(2, (MODEL.heads, MODEL.head_dim)).transpose(1, 2)

        q, k = heads(self.query(x)), heads(self.key(x))
        v = k if Core.values_are_keys else heads(self.value(x))
        mixed = zero_padding(self.core(q, k, v, valid, carry), valid)
        return self.out(mixed.transpose(1, 2).flatten(2))
