# for: nystromformer


class Core(AttentionCore):
    """F1 Z (F3 v) + conv(v): softmax of queries to landmarks, of landmarks to landmarks (Z is its pseudo-inverse) and
    of landmarks to keys; landmarks are means of segments. As many landmarks as tokens is softmax."""

    def make(self):
        if ATTENTION.conv_kernel > 0:
            self.conv = nn.Parameter(torch.zeros(self.heads, 1, ATTENTION.conv_kernel, 1))

    def inverse(self, f2, landmarks):
        f2 = f2 * landmarks[:, None, :, None] * landmarks[:, None, None, :]
        norm = f2.sum(2, keepdim=True).amax(3, keepdim=True)
        z = f2.transpose(-1, -2) / norm.masked_fill(norm == 0, 1)
        one = torch.eye(f2.size(-1), dtype=f2.dtype, device=f2.device)
        for _ in range(ATTENTION.inverse_iterations):
            near_one = f2 @ z
            z = z @ (13 * one - near_one @ (15 * one - near_one @ (7 * one - near_one))) / 4
        return z

    def attend(self, q, k, v, valid):
        n = q.size(2)
        segment = -(-n // min(ATTENTION.landmarks, n))
        if segment == 1:
            return self.softmax(q, k, v, valid)
        (short_q, landmarks), (short_k, _) = pool(q, valid, segment), pool(k, valid, segment)
        inverse = self.inverse(masked_softmax(dot(short_q, short_k), landmarks), landmarks)
        short_v = self.softmax(short_q, k, v, valid)
        return self.softmax(q, short_k, inverse @ short_v, landmarks)

    def forward(self, q, k, v, valid, carry):
        mixed = self.attend(q, k, v, valid)
        if ATTENTION.conv_kernel == 0:
            return mixed
        middle = ATTENTION.conv_kernel // 2
        return mixed + F.conv2d(zero_padding(v, valid), self.conv, padding=(middle, 0), groups=self.heads)
