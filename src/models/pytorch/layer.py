# for: layer


class Layer(nn.Module):
    """A mixer and a feed-forward part, each with a norm in front (or behind the sum) and a residual connection."""

    def __init__(self, layer, shared):
        super().__init__()

        def norm():
            return (BatchNorm if MODEL.norm == "batch" else nn.LayerNorm)(MODEL.dim, MODEL.norm_epsilon)

        self.mixer_norm = norm()
        self.mixer = Mixer(layer, shared)
        if MODEL.ff_dim > 0:
            self.ff_norm = norm()
            maps = {"in": nn.Linear(MODEL.dim, MODEL.ff_dim), "out": nn.Linear(MODEL.ff_dim, MODEL.dim)}
            self.ff = nn.ModuleDict(maps)
        self.drop = nn.Dropout(MODEL.dropout)
        # In training a branch is left out for this share of the examples.
        self.left_out = MODEL.stochastic_depth * layer / max(1, MODEL.layers - 1)

    def branch(self, x):
        kept = F.dropout(torch.ones_like(x[:, :1, :1]), self.left_out, self.training)
        return self.drop(x * kept if self.left_out > 0 else x)

    def mixed(self, x, valid, carry):
        return self.branch(self.mixer(x, valid, carry))

    def fed(self, x):
        hidden = self.ff["in"](x)
        if MODEL.activation == "relu":
            hidden = F.relu(hidden)
        else:
            hidden = F.gelu(hidden, approximate="tanh" if MODEL.activation == "gelu_tanh" else "none")
        return self.branch(self.ff["out"](self.drop(hidden)))

    def forward(self, x, valid, carry):
        if MODEL.norm == "pre":
            x = x + self.mixed(self.mixer_norm(x), valid, carry)
            return x + self.fed(self.ff_norm(x)) if MODEL.ff_dim > 0 else x
        x = self.mixer_norm(x + self.mixed(x, valid, carry))
        return self.ff_norm(x + self.fed(x)) if MODEL.ff_dim > 0 else x
