# for: etc


class Core(AttentionCore):
    """Softmax over a window and the global tokens in front, which see all."""

    def forward(self, q, k, v, valid, carry):
        window = ATTENTION.window[self.layer % len(ATTENTION.window)]
        first = torch.arange(q.size(2), device=q.device) < max(ATTENTION.global_tokens, MODEL.pinned)
        return self.softmax(q, k, v, valid, (places_apart(q).abs() <= window) | first | first[:, None])
