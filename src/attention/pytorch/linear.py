# for: linear


class Core(AttentionCore):
    """phi(q_i)^T S / (phi(q_i)^T z + 1e-6) with S = sum_j phi(k_j) v_j^T, z = sum_j phi(k_j) and phi = elu + 1."""

    def forward(self, q, k, v, valid, carry):
        phi_q, phi_k = F.elu(q) + 1, F.elu(k) + 1
        if ATTENTION.norm == "sum":
            return quotient(kernel_sums(phi_q, phi_k, with_count(v, valid)), 1e-6)
        return kernel_sums(phi_q, phi_k, zero_padding(v, valid)) / math.sqrt(k.size(2))
