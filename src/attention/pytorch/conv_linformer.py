# for: conv-linformer


class Core(AttentionCore):
    """softmax(q k'^T / sqrt(d)) v': k' and v' come from a convolution whose kernel is as long as its stride s."""

    def make(self):
        self.stride = -(-self.length // min(ATTENTION.projected_len, self.length))
        d = MODEL.head_dim
        shape = {"full": (self.stride, d, d), "depthwise": (self.stride, d), "scalar": (self.stride,)}[ATTENTION.conv]
        for name in ("conv_key", "conv_value"):
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))
            if ATTENTION.conv != "scalar":
                self.register_parameter(name + "_bias", nn.Parameter(torch.zeros(d)))

    def shorter(self, x, valid, name):
        kernel = getattr(self, name)
        windows = F.pad(zero_padding(x, valid), (0, 0, 0, -x.size(2) % self.stride)).unflatten(2, (-1, self.stride))
        if ATTENTION.conv == "scalar":
            return torch.einsum("bhksd,s->bhkd", windows, kernel)
        mixed = torch.einsum("bhksd,sd->bhkd" if ATTENTION.conv == "depthwise" else "bhksd,sde->bhke", windows, kernel)
        return mixed + getattr(self, name + "_bias")

    def forward(self, q, k, v, valid, carry):
        _, short = pool(k, valid, self.stride)
        return self.softmax(q, self.shorter(k, valid, "conv_key"), self.shorter(v, valid, "conv_value"), short)
