# for: ft-transformer
# only: kv_compression=0


class Layer(nn.Module):
    """x += attention(norm(x)), without the norm in the first layer; x += W (a relu(b)), a and b two halves of a map."""

    def __init__(self, layer, shared):
        super().__init__()
        if layer > 0:
            self.mixer_norm = nn.LayerNorm(MODEL.dim)
        self.mixer = Mixer(layer, shared)
        self.ff_norm = nn.LayerNorm(MODEL.dim)
        self.ff_in = nn.Linear(MODEL.dim, 2 * MODEL.ff_dim)
        self.ff_out = nn.Linear(MODEL.ff_dim, MODEL.dim)
        self.drop, self.ff_drop = nn.Dropout(MODEL.residual_dropout), nn.Dropout(MODEL.ff_dropout)

    def forward(self, x, valid, carry):
        x = x + self.drop(self.mixer(self.mixer_norm(x) if hasattr(self, "mixer_norm") else x, valid, carry))
        a, b = self.ff_in(self.ff_norm(x)).chunk(2, -1)
        return x + self.drop(self.ff_out(self.ff_drop(a * F.relu(b))))


class Model(nn.Module):
    """The row of a table: a token for every column, numbers first, a CLS token in front that is read at the end."""

    def __init__(self):
        super().__init__()
        self.numbers = MODEL.length - len(MODEL.categories)
        self.column_weight = nn.Parameter(torch.zeros(1 + self.numbers, MODEL.dim))  # of CLS first
        self.column_bias = nn.Parameter(torch.zeros(MODEL.length, MODEL.dim))
        if MODEL.categories:
            self.codes = nn.Parameter(torch.zeros(sum(MODEL.categories), MODEL.dim))
            self.register_buffer("code_offsets", torch.zeros(len(MODEL.categories), dtype=torch.int64))
        self.shared = nn.Module()  # what layers have in common
        for layer in range(MODEL.layers):
            self.add_module(f"layer{layer}", Layer(layer, self.shared))
        self.norm = nn.LayerNorm(MODEL.dim)
        self.classifier_out = nn.Linear(MODEL.dim, MODEL.outputs)

    def forward(self, x, mask=None):
        """rows [b,columns,1]: numbers, then codes -> logits; every column is there"""
        x = x[..., 0]
        columns = x[:, :self.numbers, None] * self.column_weight[1:]
        if MODEL.categories:
            codes = x[:, self.numbers:].long() + self.code_offsets
            columns = torch.cat([columns, F.embedding(codes, self.codes)], 1)
        x = torch.cat([self.column_weight[:1].expand(len(x), 1, -1), columns + self.column_bias], 1)
        valid, carry = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device), {}
        for layer in range(MODEL.layers):
            x = getattr(self, f"layer{layer}")(x, valid, carry)
        return self.classifier_out(F.relu(self.norm(x[:, 0])))
