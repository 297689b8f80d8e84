# for: helpers


def dot(q, k):
    """q k^T / sqrt(d) [b,h,q,k]."""
    return q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))


def masked_softmax(scores, valid, allowed=None):
    """Softmax over valid keys; a row without one is zero. scores [b,h,q,k], valid [b,k], allowed [q,k] or more."""
    closed = ~valid[:, None, None, :] if allowed is None else ~(valid[:, None, None, :] & allowed)
    return torch.softmax(scores.masked_fill(closed, -1e30), -1).masked_fill(closed, 0)


def places_apart(x):
    """i - j for all pairs of places [n,n]."""
    places = torch.arange(x.size(2), device=x.device)
    return places[:, None] - places


def not_later(x):
    """Which keys j a row i may read [n,n], where no token may see a later one; else None."""
    return places_apart(x) >= 0 if MODEL.causal else None


def beside_pinned(x, pattern):
    """A pattern [m,m] or [h,m,m] of the places behind the pinned tokens, which see all and are seen by all; causal: of
    these pairs those that look back."""
    allowed = ~F.pad(~pattern, (MODEL.pinned, 0, MODEL.pinned, 0))
    return allowed & not_later(x) if MODEL.causal else allowed


def grid_columns(core):
    """Of the grid that a sequence is, row by row: as asked, the image's, else the root of the longest length."""
    image = MODEL.columns if core.scope in ("", "scale1_") else 0
    return ATTENTION.columns or image or math.isqrt(core.length - MODEL.pinned - 1) + 1


def zero_padding(x, valid):
    """x [b,h,n,d] with zero in the rows that are not valid."""
    return x.masked_fill(~valid[:, None, :, None], 0)


def pool(x, valid, scale, pinned=0):
    """Means over `scale` neighbours, of valid tokens; the first `pinned` stay as they are -> x, valid, shorter."""
    if scale == 1:
        return x, valid
    missing = -(x.size(2) - pinned) % scale

    def sums(rows):
        return F.pad(rows[:, :, pinned:], (0, 0, 0, missing)).unflatten(2, (-1, scale)).sum(3)

    one = valid[:, None, :, None].to(x.dtype)
    count = sums(one)
    shorter = torch.cat([(x * one)[:, :, :pinned], sums(x * one) / count.clamp_min(1)], 2)
    return shorter, torch.cat([valid[:, :pinned], count[:, 0, :, 0] > 0], 1)


def kernel_sums(phi_q, phi_k, values):
    """phi(q_i)^T sum_j phi(k_j) values_j^T; causal: over j up to i."""
    if MODEL.causal:
        return torch.tril(phi_q @ phi_k.transpose(-1, -2)) @ values
    return phi_q @ (phi_k.transpose(-1, -2) @ values)


def with_count(v, valid):
    """v and a column of ones beside it, both zero where a token is not valid: sums and their denominators at once."""
    return zero_padding(torch.cat([v, torch.ones_like(v[..., :1])], -1), valid)


def quotient(sums, epsilon=0.0):
    """Sums of with_count by their denominators; zero without a valid key."""
    count = sums[..., -1:] + epsilon
    return sums[..., :-1] / count.masked_fill(count == 0, 1)
