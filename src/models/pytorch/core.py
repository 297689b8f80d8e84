# for: core


class AttentionCore(nn.Module):
    """What stands between the maps of q, k, v and that of the output: forward(q, k, v, valid, carry), q, k and v
    [b,h,n,d], valid [b,n] bool, -> [b,h,n,d]. `carry` goes from layer to layer."""

    values_are_keys = False

    def __init__(self, heads, length, layer, shared, scope=""):
        super().__init__()
        self.heads, self.length, self.layer, self.scope = heads, length, layer, scope  # length: the longest one
        self.shared = [shared]  # in a list: it is a part of the model, which has it once
        self.drop = nn.Dropout(MODEL.attention_dropout)
        self.make()

    def make(self):
        """Parameters. Their values come with the weights."""

    def softmax(self, q, k, v, valid, allowed=None):
        """softmax(q k^T / sqrt(d)) v over the valid keys that a row is allowed to read; none: all."""
        return self.drop(masked_softmax(dot(q, k), valid, allowed)) @ v

    def share(self, name, *shape):
        """The parameter that layers have in common."""
        if not hasattr(self.shared[0], name):
            self.shared[0].register_parameter(name, nn.Parameter(torch.zeros(shape)))
        return getattr(self.shared[0], name)

    def share_buffer(self, name, *shape):
        if not hasattr(self.shared[0], name):
            self.shared[0].register_buffer(name, torch.zeros(shape))
