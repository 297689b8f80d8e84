# for: local-window


class Core(AttentionCore):
    """Softmax over the keys at most `window` steps away."""

    def forward(self, q, k, v, valid, carry):
        window, apart = ATTENTION.window[self.layer % len(ATTENTION.window)], places_apart(q)
        near = (apart <= window) & (apart >= (0 if MODEL.causal else -window))
        return self.softmax(q, k, v, valid, near)
