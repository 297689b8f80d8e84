# for: memory-compressed


class Core(AttentionCore):
    """A convolution as long as its stride c makes one key and one value of every c; causal rows see those of whole
    groups behind them, and a learned null. With `alternate` even layers attend within blocks instead."""

    def make(self):
        self.local = ATTENTION.alternate and self.layer % 2 == 0
        if not self.local:
            d = MODEL.head_dim
            self.compress = nn.Parameter(torch.zeros(self.heads, ATTENTION.compression, d, d))
            self.compress_bias = nn.Parameter(torch.zeros(self.heads, 1, d))
            if MODEL.causal:
                self.null = nn.Parameter(torch.zeros(self.heads, 1, 2 * d))

    def shorter(self, x, valid):
        groups = F.pad(zero_padding(x, valid), (0, 0, 0, -x.size(2) % ATTENTION.compression))
        groups = groups.unflatten(2, (-1, ATTENTION.compression)).flatten(3)
        return groups @ self.compress.flatten(1, 2) + self.compress_bias

    def forward(self, q, k, v, valid, carry):
        places = torch.arange(q.size(2), device=q.device)
        if self.local:
            block = places // ATTENTION.block
            same = block[:, None] == block
            return self.softmax(q, k, v, valid, same & not_later(q) if MODEL.causal else same)
        _, short = pool(k, valid, ATTENTION.compression)
        k, v = self.shorter(k, valid), self.shorter(v, valid)
        if not MODEL.causal:
            return self.softmax(q, k, v, short)
        null_k, null_v = self.null.expand(len(q), -1, -1, -1).chunk(2, -1)
        seen = (places[:, None] + 1) // ATTENTION.compression > torch.arange(k.size(2), device=q.device)
        allowed = F.pad(seen, (1, 0), value=True)
        short = torch.cat([valid.any(1, keepdim=True), short], 1)
        return self.softmax(q, torch.cat([null_k, k], 2), torch.cat([null_v, v], 2), short, allowed)
