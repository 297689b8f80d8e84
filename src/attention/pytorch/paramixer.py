# for: paramixer-chord, paramixer-cdil


def two_maps(width):
    return nn.ModuleDict({"in": nn.Linear(MODEL.dim, ATTENTION.hidden), "out": nn.Linear(ATTENTION.hidden, width)})


class Layer(nn.Module):
    """A whole layer: values of the input times sparse factors, whose entries are maps of what the first layer reads."""

    def __init__(self, layer, shared):
        super().__init__()
        self.factors = ATTENTION.factors or (MODEL.max_len - 1).bit_length()
        self.links = ATTENTION.links or self.factors + 1
        self.value = two_maps(MODEL.dim)
        for m in range(self.factors):
            self.add_module(f"factor{m}", two_maps(self.links))
        self.drop = nn.Dropout(MODEL.attention_dropout)

    def offsets(self, m):
        """Steps from a place to those that it is linked to, around the end."""
        if ATTENTION.name == "paramixer-chord":
            return [0, *(2**p for p in range(self.links - 1))]
        return [0, *(sign * k * 2**m for sign in (1, -1) for k in range(1, self.links // 2 + 1))]

    def forward(self, x, valid, carry):
        def mapped(maps, rows):
            return maps["out"](F.gelu(maps["in"](rows)))

        def shown(rows):
            return rows.masked_fill(~valid.unsqueeze(-1), 0) if ATTENTION.mask_pads else rows

        first = carry.setdefault("first_input", x)
        v = before = shown(mapped(self.value, x))
        for m in range(self.factors):
            weights = mapped(getattr(self, f"factor{m}"), first)  # [b,n,links]
            sums = sum(weights[..., p:p + 1] * v.roll(-step, 1) for p, step in enumerate(self.offsets(m)))
            v = shown(sums + v if ATTENTION.residual == "factor" else sums)
        return self.drop(v if ATTENTION.residual == "factor" else v + before)
