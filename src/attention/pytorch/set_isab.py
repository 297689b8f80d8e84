# for: set-isab


class AttentionBlock(nn.Module):
    """MAB(x, y) of the Set Transformer, in the form that `mab` says."""

    def __init__(self):
        super().__init__()
        self.paper = ATTENTION.mab == "paper"
        for name in ("query", "key", "value", "out", *(["ff"] if self.paper else [])):
            self.add_module(name, nn.Linear(MODEL.dim, MODEL.dim))
        if ATTENTION.mab != "code":
            for name in ("norm", "ff_norm"):
                self.register_parameter(name + "_weight", nn.Parameter(torch.ones(MODEL.dim)))
                self.register_parameter(name + "_bias", nn.Parameter(torch.zeros(MODEL.dim)))
        self.drop = nn.Dropout(MODEL.attention_dropout)

    def normed(self, x, name):
        if ATTENTION.mab == "code":
            return x
        return F.layer_norm(x, x.shape[-1:], getattr(self, name + "_weight"), getattr(self, name + "_bias"), 1e-5)

    def forward(self, x, y, valid):
        def heads(rows):
            return rows.unflatten(2, (MODEL.heads, -1)).transpose(1, 2)

        asked = self.query(x).expand(len(y), -1, -1)
        q, k, v = heads(asked), heads(self.key(y)), heads(self.value(y))
        width = MODEL.dim // MODEL.heads if self.paper else MODEL.dim
        weights = masked_softmax(q @ k.transpose(-1, -2) / math.sqrt(width), valid)
        mixed = (self.drop(weights) @ v).transpose(1, 2).flatten(2)
        half = self.normed(x + self.out(mixed) if self.paper else asked + mixed, "norm")
        return self.normed(half + F.relu((self.ff if self.paper else self.out)(half)), "ff_norm")


class Layer(nn.Module):
    """A whole layer: inducing points attend to the tokens, and the tokens to what the points became."""

    def __init__(self, layer, shared):
        super().__init__()
        self.inducing = nn.Parameter(torch.zeros(1, ATTENTION.inducing, MODEL.dim))
        self.gather, self.spread = AttentionBlock(), AttentionBlock()

    def forward(self, x, valid, carry):
        gathered = self.gather(self.inducing, x, valid)
        every_point = torch.ones(gathered.shape[:2], dtype=torch.bool, device=x.device)
        return self.spread(x, gathered, every_point).masked_fill(~valid.unsqueeze(-1), 0)
