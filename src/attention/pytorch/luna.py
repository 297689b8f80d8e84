# for: luna


class Core(AttentionCore):
    """A few rows p pack the sequence, y = Attn(LN(p) W_pq, k, v), every token reads those, Attn(q, y W_k, y W_v), and
    p + y goes on to the next layer."""

    def make(self):
        width = self.heads * MODEL.head_dim
        self.share(self.scope + "luna_first", ATTENTION.packed_len, width)
        self.norm_weight, self.norm_bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        for name in ("pack_query", "packed_key", "packed_value"):
            self.add_module(name, nn.Linear(width, width, MODEL.attention_bias))

    def forward(self, q, k, v, valid, carry):
        def heads(rows):
            return rows.unflatten(2, (self.heads, -1)).transpose(1, 2)

        first = getattr(self.shared[0], self.scope + "luna_first").expand(len(q), -1, -1)
        packed = carry.get(self.scope + "luna", first)
        normed = F.layer_norm(packed, packed.shape[2:], self.norm_weight, self.norm_bias, 1e-5)
        weights = self.drop(masked_softmax(dot(heads(self.pack_query(normed)), k), valid))
        update = (weights @ v).transpose(1, 2).flatten(2)
        carry[self.scope + "luna"] = packed + self.drop(update)
        packed_k, packed_v = heads(self.packed_key(update)), heads(self.packed_value(update))
        mixed = self.drop(torch.softmax(dot(q, packed_k), -1)) @ packed_v
        return mixed.masked_fill(~valid.any(1)[:, None, None, None], 0)
