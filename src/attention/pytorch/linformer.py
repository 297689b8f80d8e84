# for: linformer


class Core(AttentionCore):
    """softmax(q (E k)^T / sqrt(d)) (F v): E and F [heads or 1, k, N] mix the tokens of a whole sequence."""

    values_are_keys = ATTENTION.share_kv

    def make(self):
        heads = self.heads if ATTENTION.sharing in ("mlpen", "none") else 1
        shape = (heads, min(ATTENTION.projected_len, self.length), self.length)
        self.common = ATTENTION.sharing in ("mlpen", "layerwise")
        if self.common:
            self.share(self.scope + "linformer_e", *shape)
        else:
            self.e = nn.Parameter(torch.zeros(shape))
        if ATTENTION.sharing in ("headwise", "none"):
            self.f = nn.Parameter(torch.zeros(shape))

    def forward(self, q, k, v, valid, carry):
        e = getattr(self.shared[0], self.scope + "linformer_e") if self.common else self.e
        f = e if ATTENTION.sharing in ("mlpen", "layerwise", "kv") else self.f
        n = k.size(2)
        k, v = e[:, :, :n] @ zero_padding(k, valid), f[:, :, :n] @ zero_padding(v, valid)
        return self.drop(torch.softmax(dot(q, k), -1)) @ v
