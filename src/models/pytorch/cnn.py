# for: cnn


class Model(nn.Module):
    """Residual convolutions over a square grey image whose pixels are the ids."""

    def __init__(self):
        super().__init__()
        self.side = math.isqrt(MODEL.length)
        self.blocks = []  # (name, stride, whether it has a shortcut)
        width, stride = MODEL.width, 2 if self.side > 32 else 1
        self.stem_stride = stride
        self.convolution("stem", 1, width, 3)
        side, stage = -(-self.side // stride), 0
        while stage == 0 or side > 8:
            wider = width if stage == 0 else min(2 * width, 4 * MODEL.width)
            for i in range(2):
                name, into = f"stage{stage}_block{i}_", width if i == 0 else wider
                stride = 2 if stage > 0 and i == 0 else 1
                self.norm(name + "first_norm", into)
                self.convolution(name + "first", into, wider, 3)
                self.norm(name + "second_norm", wider)
                self.convolution(name + "second", wider, wider, 3)
                shortcut = stride > 1 or into != wider
                if shortcut:
                    self.convolution(name + "shortcut", into, wider, 1)
                self.blocks.append((name, stride, shortcut))
                side = -(-side // stride)
            width, stage = wider, stage + 1
        self.norm("last_norm", width)
        self.classifier_out = nn.Linear(width, MODEL.outputs)

    def convolution(self, name, into, out, size):
        self.register_parameter(name, nn.Parameter(torch.zeros(out, into, size, size)))

    def norm(self, name, width):
        self.register_parameter(name + "_weight", nn.Parameter(torch.ones(width)))
        self.register_parameter(name + "_bias", nn.Parameter(torch.zeros(width)))

    def convolved(self, x, name, stride=1):
        weight = getattr(self, name)
        return F.conv2d(x, weight, stride=stride, padding=weight.size(2) // 2)

    def active(self, x, name):
        return F.relu(F.group_norm(x, 4, getattr(self, name + "_weight"), getattr(self, name + "_bias"), 1e-5))

    def forward(self, x, mask=None):
        """ids [b,n]: pixels from 0 to 255, row by row -> logits; every place is valid"""
        x = x.to(self.classifier_out.weight.dtype).view(-1, 1, self.side, self.side) / 127.5 - 1
        x = self.convolved(x, "stem", self.stem_stride)
        for name, stride, shortcut in self.blocks:
            inner = self.active(x, name + "first_norm")
            branch = self.convolved(inner, name + "first", stride)
            branch = self.convolved(self.active(branch, name + "second_norm"), name + "second")
            x = (self.convolved(inner, name + "shortcut", stride) if shortcut else x) + branch
        return self.classifier_out(self.active(x, "last_norm").mean((2, 3)))
