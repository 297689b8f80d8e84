# for: lstm


class Model(nn.Module):
    """Embedding, LSTM, the state behind the last valid place, a linear map."""

    def __init__(self):
        super().__init__()
        if MODEL.vocabulary > 0:
            self.tokens = nn.Parameter(torch.zeros(MODEL.vocabulary, MODEL.dim))
        elif MODEL.categories:
            self.events = EventInput()
        else:
            self.input = nn.Linear(MODEL.numbers, MODEL.dim)
        for layer in range(MODEL.layers):
            into = MODEL.dim if layer == 0 else MODEL.hidden
            widths = {"input_weight": [into], "state_weight": [MODEL.hidden], "input_bias": [], "state_bias": []}
            for name, width in widths.items():
                gates = torch.zeros(4 * MODEL.hidden, *width)
                self.register_parameter(f"layer{layer}_{name}", nn.Parameter(gates))
        self.drop = nn.Dropout(MODEL.dropout)
        self.classifier_out = nn.Linear(MODEL.hidden, MODEL.outputs)

    def forward(self, x, mask=None):
        """ids [b,n] or numbers [b,n,width]; mask [b,n] bool; none: all valid -> logits"""
        if mask is None:
            mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        if MODEL.vocabulary > 0:
            x = F.embedding(x, self.tokens)
        else:
            x = (self.events if MODEL.categories else self.input)(x)
        x = self.drop(x)
        weights = [getattr(self, f"layer{layer}_{name}") for layer in range(MODEL.layers)
                   for name in ("input_weight", "state_weight", "input_bias", "state_bias")]
        start = x.new_zeros(MODEL.layers, len(x), MODEL.hidden)
        states = torch.lstm(x, (start, start), weights, True, MODEL.layers, 0.0, self.training, False, True)[0]
        last = torch.where(mask, torch.arange(x.size(1), device=x.device), 0).amax(1)
        return self.classifier_out(self.drop(states[torch.arange(len(x)), last]))
