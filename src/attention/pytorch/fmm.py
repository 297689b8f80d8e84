# for: fmm


KERNELS = {"elu": lambda x: F.elu(x) + 1, "celu": lambda x: F.elu(x) + 1, "elu-flip": lambda x: F.elu(-x) + 1,
           "tanh": lambda x: 1 + torch.tanh(x), "tanh-orthogonal": lambda x: 1 - torch.tanh(x), "relu": F.relu,
           "sigmoid": torch.sigmoid, "softplus": F.softplus, "leaky-relu": lambda x: F.leaky_relu(x) + 1}


class Core(AttentionCore):
    """w1 softmax over keys less than `band` steps away + w2 kernel attention over all."""

    def make(self):
        blend, kernels = ATTENTION.blend, ATTENTION.kernels.split("+")
        if blend in ("both-head", "near-head", "convex"):
            self.near_weight = nn.Parameter(torch.zeros((1,) if blend == "convex" else (self.heads, 1, 1)))
        if blend in ("both-head", "far-elem"):
            self.far_weight = nn.Parameter(torch.zeros(self.heads, 1, MODEL.head_dim if blend == "far-elem" else 1))
        if blend != "near" and len(kernels) > 1 and ATTENTION.kernel_weights != "equal":
            fixed = 1 if ATTENTION.kernel_weights == "first-fixed" else 0
            self.kernel_weights = nn.Parameter(torch.zeros(len(kernels) - fixed))

    def near(self, q, k, v, valid):
        apart = places_apart(q)
        band = (apart < ATTENTION.band) & (apart > (-1 if MODEL.causal else -ATTENTION.band))
        return self.softmax(q, k, v, valid, band)

    def far(self, q, k, v, valid):
        kernels, total = [KERNELS[name] for name in ATTENTION.kernels.split("+")], 0
        weights = [1] * len(kernels)
        if len(kernels) > 1:
            if ATTENTION.kernel_weights == "equal":
                weights = [1 / len(kernels)] * len(kernels)
            else:
                weights = [*([1] if ATTENTION.kernel_weights == "first-fixed" else []), *self.kernel_weights]
        for phi, weight in zip(kernels, weights):
            if ATTENTION.norm == "sum":
                sums = kernel_sums(phi(q), phi(k), with_count(v, valid))
                total = total + weight * sums[..., :-1] / (sums[..., -1:] + 1e-6)
            else:
                total = total + weight * kernel_sums(phi(q), phi(k), zero_padding(v, valid)) / math.sqrt(k.size(2))
        return total

    def forward(self, q, k, v, valid, carry):
        if ATTENTION.blend == "near":
            return self.near(q, k, v, valid)
        far = self.far(q, k, v, valid)
        if ATTENTION.blend == "far":
            return far
        near = self.near(q, k, v, valid)
        if ATTENTION.blend == "convex":
            return self.near_weight * near + (1 - self.near_weight) * far
        if ATTENTION.blend != "far-elem":
            near = self.near_weight * near
        return near + (self.far_weight * far if ATTENTION.blend != "near-head" else far)
