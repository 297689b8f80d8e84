# for: additive


class Core(AttentionCore):
    """softmax of w tanh(q_i + k_j)."""

    def make(self):
        self.score_weight = nn.Parameter(torch.zeros(self.heads, MODEL.head_dim))

    def forward(self, q, k, v, valid, carry):
        hidden = torch.tanh(q.unsqueeze(3) + k.unsqueeze(2))  # [b,h,n,n,d]
        scores = torch.einsum("bhijd,hd->bhij", hidden, self.score_weight)
        return self.drop(masked_softmax(scores, valid, not_later(q))) @ v
