# for: set-induced


class Core(AttentionCore):
    """Learned queries I gather keys and values, A = softmax(I k^T / sqrt(d)); every token reads what they gathered:
    softmax(q (A k)^T / sqrt(d)) A v."""

    def make(self):
        self.inducing = nn.Parameter(torch.zeros(self.heads, ATTENTION.inducing, MODEL.head_dim))

    def forward(self, q, k, v, valid, carry):
        gather = self.drop(masked_softmax(dot(self.inducing[None], k), valid))
        return self.drop(torch.softmax(dot(q, gather @ k), -1)) @ (gather @ v)
