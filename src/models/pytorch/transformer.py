# for: encoder, dual-encoder, decoder, token-encoder, vit


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        if MODEL.vocabulary > 0:
            rows = MODEL.vocabulary_rows or MODEL.vocabulary + (MODEL.pooling == "cls_token")
            self.tokens = nn.Parameter(torch.zeros(rows, MODEL.dim))
        elif MODEL.categories:
            self.events = EventInput()
        else:
            self.input = nn.Linear(MODEL.numbers, MODEL.dim)
        positions = torch.zeros(MODEL.length + (MODEL.pooling == "cls_vector"), MODEL.dim)
        if MODEL.positions == "learned":
            self.positions = nn.Parameter(positions)
        if MODEL.positions == "sinusoidal":
            self.register_buffer("positions", positions)  # a table that comes with the weights
        if MODEL.segments > 0:
            self.segments = nn.Parameter(torch.zeros(MODEL.segments, MODEL.dim))
        if MODEL.pooling == "cls_vector":
            self.cls = nn.Parameter(torch.zeros(1, 1, MODEL.dim))
        if MODEL.prefix > 0:
            self.prefix = nn.Parameter(torch.zeros(1, MODEL.prefix, MODEL.dim))
        self.drop = nn.Dropout(MODEL.dropout)
        self.shared = nn.Module()  # what layers have in common
        for layer in range(MODEL.layers):
            self.add_module(f"layer{layer}", Layer(layer, self.shared))
        if MODEL.final_norm:
            self.norm = nn.LayerNorm(MODEL.dim, MODEL.norm_epsilon)
        summary = MODEL.summaries * MODEL.dim * (MODEL.length if MODEL.pooling == "flatten" else 1)
        widths = [summary, *MODEL.head_widths, MODEL.outputs]
        hidden = ["classifier_in", "classifier_middle"][:len(MODEL.head_widths)]
        self.maps = [] if MODEL.tied else [*hidden, "classifier_out"]
        for name, into, out in zip(self.maps, widths, widths[1:]):
            self.add_module(name, nn.Linear(into, out))

    def embedded(self, x, valid, segments):
        """ids [b,n] or numbers [b,n,width], valid and segments [b,n] -> vectors of the places and what stands in
        front, valid."""
        def in_front(vectors, valid_ones):
            return torch.cat([vectors.expand(len(x), -1, -1), x], 1), torch.cat([valid_ones, valid], 1)

        if MODEL.pooling == "cls_token":  # the last id of the table, in the place of the sequence's last
            x = torch.cat([torch.full_like(x[:, :1], len(self.tokens) - 1), x[:, :-1]], 1)
            valid = torch.cat([torch.ones_like(valid[:, :1]), valid[:, :-1]], 1)
        if MODEL.vocabulary > 0:
            x = F.embedding(x, self.tokens)
        else:
            x = (self.events if MODEL.categories else self.input)(x)
        if MODEL.scale_input:
            x = x * math.sqrt(MODEL.dim)
        if MODEL.pooling == "cls_vector":
            x, valid = in_front(self.cls, valid[:, :1])
        if MODEL.positions != "none":
            x = x + self.positions[:x.size(1)]
        if MODEL.segments > 0:
            x = x + F.embedding(torch.zeros_like(valid, dtype=torch.long) if segments is None else segments,
                                self.segments)
        if MODEL.prefix > 0:
            x, valid = in_front(self.prefix, torch.ones_like(valid[:, :1]).expand(-1, MODEL.prefix))
        return self.drop(x), valid

    def layers(self, x, valid):
        if MODEL.key_places == "all":
            valid = valid | valid.any(1, keepdim=True)
        every = [getattr(self, f"layer{layer}") for layer in range(MODEL.layers)]
        carry = {}
        if not MODEL.reversible:
            for layer in every:
                x = layer(x, valid, carry)
            return x
        first = second = x
        for layer in every:
            first = first + layer.mixed(layer.mixer_norm(second), valid, carry)
            second = second + layer.fed(layer.ff_norm(first))
        return (first + second) / 2

    def pooled(self, x, valid):
        """[b,n,m] -> [b,m], or every place by itself."""
        if MODEL.final_norm:
            x = self.norm(x)
        if MODEL.activate_output:
            x = self.drop(F.gelu(x))
        factor = valid.unsqueeze(-1).to(x.dtype)
        if MODEL.mask_output:
            x = x * factor
        places, own = x[:, MODEL.pinned:], factor[:, MODEL.pinned:]
        if MODEL.pooling == "none":
            return places
        if MODEL.pooling.startswith("cls_"):
            return x[:, MODEL.pinned - 1]
        if MODEL.pooling == "flatten":
            return places.flatten(1)
        if MODEL.pooling == "mean_padded":
            return places.mean(1)
        if MODEL.pooling == "prefix_max":  # of a sequence without a place: 0
            largest = places.masked_fill(own == 0, -6e4).amax(1)
            return (x[:, 0] + torch.where(own.any(1), largest, torch.zeros_like(largest))) / 2
        return (places * own).sum(1) / own.sum(1).clamp_min(1)

    def forward(self, x, mask=None, segments=None):
        """ids [b,n] (of pairs [b,2,n]) or numbers [b,n,width]; mask as the places, bool; none: all valid; segments
        [b,n] where the task has them; none: all the first -> logits"""
        valid = mask
        if mask is None:
            valid = torch.ones(x.shape if MODEL.vocabulary > 0 else x.shape[:-1], dtype=torch.bool, device=x.device)
        if MODEL.sequences == 2:
            x, valid = x.flatten(0, 1), valid.flatten(0, 1)
        x, valid = self.embedded(x, valid, segments)
        x = self.pooled(self.layers(x, valid), valid)
        if MODEL.sequences == 2:
            a, b = x.unflatten(0, (-1, 2)).unbind(1)
            x = torch.cat([a, b, a * b, a - b] if MODEL.interaction == "nli" else [a, b], 1)
        for i, name in enumerate(self.maps):
            x = getattr(self, name)(F.relu(x) if i > 0 else x)
        return x @ self.tokens[-MODEL.outputs:].T if MODEL.tied else x
