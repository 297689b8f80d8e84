# for: synth-dense, synth-random, synth-random-dot, synth-fact-random, synth-fact-dense


class Mixer(nn.Module):
    """softmax(S) v, where S is learned and does not look at pairs: a table (random), the product of two (fact-random),
    a function of the row's token (dense), or the outer product of two short ones (fact-dense); `dot` adds q k."""

    def __init__(self, layer, shared):
        super().__init__()
        heads, d, bias, n = MODEL.heads, MODEL.head_dim, MODEL.attention_bias, MODEL.max_len
        self.kind = ATTENTION.name.removeprefix("synth-").removesuffix("-dot")
        self.dot = ATTENTION.name == "synth-random-dot" or ATTENTION.dot
        names = [*(["query", "key"] if self.dot else []), "value", *(["hidden"] if "dense" in self.kind else [])]
        for name in names:
            self.add_module(name, nn.Linear(MODEL.dim, heads * d, bias))
        self.out = nn.Linear(heads * d, MODEL.dim, bias)
        self.drop = nn.Dropout(MODEL.attention_dropout)
        if self.kind == "dense":
            self.map("score", n)
        if self.kind == "fact-dense":  # as many coarse places as the largest divisor of n up to its root
            coarse = next(rows for rows in range(math.isqrt(n), 0, -1) if n % rows == 0)
            self.map("coarse", coarse)
            self.map("fine", n // coarse)
        if self.kind == "random":
            self.table = nn.Parameter(torch.zeros(heads, n, n))
        if self.kind == "fact-random":
            self.left = nn.Parameter(torch.zeros(heads, n, ATTENTION.rank))
            self.right = nn.Parameter(torch.zeros(heads, ATTENTION.rank, n))

    def map(self, name, rows):
        self.register_parameter(name + "_weight", nn.Parameter(torch.zeros(MODEL.heads, rows, MODEL.head_dim)))
        if MODEL.attention_bias:
            self.register_parameter(name + "_bias", nn.Parameter(torch.zeros(MODEL.heads, 1, rows)))

    def mapped(self, name, hidden):
        y = hidden @ getattr(self, name + "_weight").transpose(-1, -2)
        return y + getattr(self, name + "_bias") if MODEL.attention_bias else y

    def synthesized(self, hidden, n):
        if self.kind == "random":
            return self.table[None, :, :n, :n]
        if self.kind == "fact-random":
            return (self.left[:, :n] @ self.right[:, :, :n])[None]
        if self.kind == "dense":
            return self.mapped("score", hidden)[..., :n]
        coarse, fine = self.mapped("coarse", hidden), self.mapped("fine", hidden)
        return (coarse.unsqueeze(-1) * fine.unsqueeze(-2)).flatten(-2)[..., :n]

    def forward(self, x, valid, carry):
        def heads(rows):  # [b,n,h d] -> [b,h,n,d]
            return rows.unflatten(2, (MODEL.heads, MODEL.head_dim)).transpose(1, 2)

        v = heads(self.value(x))
        scores = self.synthesized(heads(F.relu(self.hidden(x))) if "dense" in self.kind else None, x.size(1))
        if self.dot:
            scores = scores + dot(heads(self.query(x)), heads(self.key(x)))
        mixed = zero_padding(self.drop(masked_softmax(scores, valid, not_later(v))) @ v, valid)
        return self.out(mixed.transpose(1, 2).flatten(2))
