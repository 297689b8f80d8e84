# for: events


class EventInput(nn.Module):
    """Places that hold numbers and, behind them, codes of words: a vector for each word, and one map of all of them."""

    def __init__(self):
        super().__init__()
        width = MODEL.numbers - len(MODEL.categories)
        for i, size in enumerate(MODEL.categories):
            own = min(32, math.ceil(1.6 * size**0.56))
            self.register_parameter(f"codes_{i}", nn.Parameter(torch.zeros(size, own)))
            width += own
        self.map = nn.Linear(width, MODEL.dim)

    def forward(self, values):
        words = len(MODEL.categories)
        codes = values[..., MODEL.numbers - words:].long()
        vectors = [F.embedding(codes[..., i], getattr(self, f"codes_{i}")) for i in range(words)]
        return self.map(torch.cat([*vectors, values[..., :MODEL.numbers - words]], -1))
