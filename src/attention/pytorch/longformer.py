# for: longformer
# only: global_tied=true


class Core(AttentionCore):
    """Softmax over a window, dilated for each head, and the first tokens, which see all."""

    def forward(self, q, k, v, valid, carry):
        window, apart = ATTENTION.window[self.layer % len(ATTENTION.window)], places_apart(q)
        first = self.layer * self.heads
        steps = [ATTENTION.dilation[(first + head) % len(ATTENTION.dilation)] for head in range(self.heads)]
        steps = torch.tensor(steps, device=q.device).view(-1, 1, 1)
        allowed = (apart.abs() <= window * steps) & (apart % steps == 0)
        first = torch.arange(q.size(2), device=q.device) < ATTENTION.global_tokens
        allowed = allowed | first | first[:, None]
        if MODEL.causal:
            allowed = allowed & not_later(q)
        return self.softmax(q, k, v, valid, allowed)
