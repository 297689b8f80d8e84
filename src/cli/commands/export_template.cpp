// `xformer export-template FILE.py`: an attention in Python, to be changed, that is scripted for `--model
// script:FILE.pt`.
#include <fmt/format.h>

#include <memory>

#include "cli/command.h"
#include "core/error.h"
#include "core/files.h"

namespace xformer::cli {

namespace {

// @STEM@ is the file's name without its ending.
constexpr std::string_view kTemplate =
    R"python("""An attention of my own for xformer, as a TorchScript module. Change it, then:

    python3 @STEM@.py                                       # writes @STEM@.pt (needs PyTorch 2.11)
    xformer check @STEM@.pt                                 # is it fit, and what does it cost?
    xformer train --model script:@STEM@.pt --task temporal-order --steps 200
    xformer train --model mrs-script:@STEM@.pt --task listops --steps 200   # each head at its own resolution
"""

import pathlib

import torch


class MyAttention(torch.nn.Module):
    # Attributes that are numbers, words or lists of whole numbers are options of the model, with these defaults:
    # `--set attention.epsilon=1e-3`; `xformer describe script:@STEM@.pt` lists them.
    epsilon: float
    # xformer sets this one. To have it claims that no token sees a later one while it is true; without it causal tasks
    # are refused. `dropout: float`, the rate for attention weights, is set too where there is one; drop with
    # torch.dropout(weights, self.dropout, self.training).
    causal: bool

    def __init__(self) -> None:
        super().__init__()
        self.epsilon = 1e-6
        self.causal = False
        # Parameters and buffers are trained and saved with the run, a set for every layer (and scale of mrs-), each
        # beginning with the values in the file.
        self.temperature = torch.nn.Parameter(torch.ones(1))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """q, k, v are [batch, heads, tokens, width]; mask is [batch, tokens], bool, true where a token is valid. The
        result is shaped as v. Rows of tokens that are not valid may hold anything, but no valid row may depend on them.
        """
        # Kernel attention, o_i = phi(q_i) sum_j phi(k_j) v_j^T / phi(q_i) sum_j phi(k_j), as a beginning.
        phi_q = torch.nn.functional.elu(q * self.temperature) + 1
        phi_k = torch.nn.functional.elu(k) + 1
        phi_k = phi_k * mask.unsqueeze(1).unsqueeze(-1).to(k.dtype)  # padded keys weigh nothing
        if self.causal:
            weights = torch.tril(torch.matmul(phi_q, phi_k.transpose(-1, -2)))
            return torch.matmul(weights, v) / (weights.sum(-1, keepdim=True) + self.epsilon)
        sums = torch.matmul(phi_k.transpose(-1, -2), v)  # [batch, heads, width, width]
        total = phi_k.sum(2).unsqueeze(-1)  # [batch, heads, width, 1]
        return torch.matmul(phi_q, sums) / (torch.matmul(phi_q, total) + self.epsilon)


if __name__ == "__main__":
    path = pathlib.Path(__file__).with_suffix(".pt")
    torch.jit.script(MyAttention()).save(str(path))
    print(path)
)python";

int export_template(const Path& file) {
  XF_CHECK(file.extension() == ".py", UserError, "{}: expected the name of a Python file, e.g. my_attention.py",
           file.string());
  XF_CHECK(!std::filesystem::exists(file), UserError, "{} is there already", file.string());
  std::string text(kTemplate);
  const std::string mark = "@STEM@", stem = file.stem().string();
  for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += stem.size())
    text.replace(at, mark.size(), stem);
  write_file_atomically(file, text);
  fmt::print("{}\n  python3 {}, then: xformer check {}\n", file.string(), file.string(),
             Path(file).replace_extension(".pt").string());
  return 0;
}

}  // namespace

std::function<int()> add_export_template(CLI::App& program) {
  const auto file = std::make_shared<std::string>();
  CLI::App& command = *program.add_subcommand(
      "export-template", "a Python file to write an attention of your own in (--model script:FILE.pt)");
  command.add_option("FILE", *file, "e.g. my_attention.py")->required();
  return [file] { return export_template(*file); };
}

}  // namespace xformer::cli
