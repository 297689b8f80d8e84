# for: logsparse
# only: query_kernel=1


class Core(AttentionCore):
    """Softmax over about log2 n keys: those at distances 0 to l - 1 and l - 1 + 2^a, or the last tokens of the blocks
    that a binary tree leaves behind a token (ahead of it: the first ones)."""

    def exponential(self, n):
        period, local = min(ATTENTION.restart, n) if ATTENTION.restart > 0 else n, ATTENTION.local
        doubled = {local - 1 + 2**a for a in range(n.bit_length()) if local - 1 + 2**a < period}
        base = {*range(min(local, period)), *doubled}
        return {start + distance for start in range(0, n, period) for distance in base}

    def bit_suffix(self, row, n):
        bits = range(n.bit_length())
        ahead = set() if MODEL.causal else {((row >> t) + 1) << t for t in bits if not row >> t & 1}
        return {row, *((row >> t << t) - 1 for t in bits if 1 << t <= row), *ahead}

    def forward(self, q, k, v, valid, carry):
        n = q.size(2)
        if ATTENTION.pattern == "exponential":
            near = torch.tensor([distance in self.exponential(n) for distance in range(n)], device=q.device)
            allowed = near[places_apart(q).abs()]
        else:
            keys = [self.bit_suffix(row, n) for row in range(n)]
            allowed = torch.tensor([[key in keys[row] for key in range(n)] for row in range(n)], device=q.device)
        return self.softmax(q, k, v, valid, allowed & not_later(q) if MODEL.causal else allowed)
