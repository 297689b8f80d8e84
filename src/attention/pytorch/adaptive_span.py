# for: adaptive-span


class Core(AttentionCore):
    """Each head learns how far it looks, z of the longest span S: weights m(x) exp(s) / sum of m(x) exp(s) with
    m(x) = min(max((R + S z - x) / R, 0), 1), x the steps to a key, and s = q (k + e_x) / sqrt(d)."""

    def make(self):
        self.longest = ATTENTION.span or self.length
        self.first = 0 if ATTENTION.include_self else 1  # steps to the nearest key
        self.reach = self.longest - 1 + self.first
        self.span = nn.Parameter(torch.zeros(self.heads, 1, 1))
        self.share(self.scope + "adaptive_span_past", self.longest, MODEL.head_dim)
        if not MODEL.causal and self.reach > 0:
            self.share(self.scope + "adaptive_span_ahead", self.reach, MODEL.head_dim)

    def forward(self, q, k, v, valid, carry):
        apart = places_apart(q)  # i - j
        vectors = getattr(self.shared[0], self.scope + "adaptive_span_past")
        place = (apart - self.first).clamp(0, self.longest - 1)
        if not MODEL.causal and self.reach > 0:
            vectors = torch.cat([vectors, getattr(self.shared[0], self.scope + "adaptive_span_ahead")])
            place = torch.where(apart < 0, (self.longest - 1 - apart).clamp_max(len(vectors) - 1), place)
        asked = q / math.sqrt(q.size(-1))
        scores = asked @ k.transpose(-1, -2) + (asked @ vectors.T).gather(-1, place.expand(*q.shape[:3], -1))
        allowed = apart.abs() <= self.reach
        if not ATTENTION.include_self:
            allowed = allowed & (apart != 0)
        if MODEL.causal:
            allowed = allowed & not_later(q)
        steps = apart.abs() - self.first
        soft = ((self.longest * self.span + (ATTENTION.ramp - steps)) / ATTENTION.ramp).clamp(0, 1)
        scores = scores + soft.clamp_min(1e-30).log()
        return self.drop(masked_softmax(scores, valid, allowed & (soft > 0))) @ v
