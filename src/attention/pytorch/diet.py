# for: diet-cascade, diet-dilated, diet-dilated-memory


class Core(AttentionCore):
    """Softmax over the keys at few distances, others in each layer: a window that grows from layer to layer, or a few
    steps that do; with memory those of the layers below too."""

    def distances(self, n):
        if ATTENTION.name == "diet-cascade":
            return set(range(min(n, int(ATTENTION.first_window * ATTENTION.window_growth**self.layer))))
        layers = range(self.layer + 1) if ATTENTION.name == "diet-dilated-memory" else [self.layer]
        return {c * ATTENTION.dilation_base**layer for layer in layers for c in range(min(n, ATTENTION.links))}

    def forward(self, q, k, v, valid, carry):
        n = q.size(2)
        read = self.distances(n)
        near = torch.tensor([distance in read for distance in range(n)], device=q.device)[places_apart(q).abs()]
        return self.softmax(q, k, v, valid, near & not_later(q) if MODEL.causal else near)
