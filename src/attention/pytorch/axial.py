# for: axial
# only: axes=alternate|union


class Core(AttentionCore):
    """The sequence is a grid, row by row: softmax over a token's row in even layers and its column in odd ones, or over
    both."""

    def forward(self, q, k, v, valid, carry):
        columns = grid_columns(self)
        places = torch.arange(q.size(2) - MODEL.pinned, device=q.device)
        row, column = places // columns, places % columns
        same_row, same_column = row[:, None] == row, column[:, None] == column
        if ATTENTION.axes == "union":
            pattern = same_row | same_column
        else:
            pattern = same_column if self.layer % 2 else same_row
        return self.softmax(q, k, v, valid, beside_pinned(q, pattern))
