// Attention of a segment to itself and to what stood before it, by content and by distance: Dai et al. 2019,
// "Transformer-XL: Attentive Language Models beyond a Fixed-Length Context", section 3.3. Of row i and key j, t = p + i
// - j steps apart with p places in front of the segment:
//   score = ((q_i + u) k_j + (q_i + w) (W_r R_t)) / sqrt(d),   R_t = [sin(t f), cos(t f)],  f_a = 10000^(-2 a / m)
// u and w [h,d] are the same in all layers. Causal: t >= 0. Both ways t also counts down from 0, as in XLNet (Yang et
// al. 2019, section 2.2), and nothing stands before a sequence. What is in front is given: who owns a memory says which
// rows those are (variants/transformer_xl.cpp, compressive.cpp).
#pragma once

#include "attention/multi_head.h"
#include "attention/shared/index_tables.h"

namespace xformer::attention {

struct RelativeOptions {
  int64_t memory = 512;  // rows of earlier segments that a layer remembers
  int64_t clamp = 0;     // farther places are at this distance; 0: none is
};
// The options' help, which is the same for all who have them.
inline constexpr const char* kMemoryHelp =
    "places of earlier segments that every layer remembers (M), where training or scoring goes on from batch to batch; "
    "0: none";
inline constexpr const char* kClampHelp = "places farther away than this are taken to be at this distance; 0: none are";

// Rows in front of a segment. Undefined: none.
struct Past {
  at::Tensor rows;   // [b,p,m], without a gradient
  at::Tensor valid;  // [b,p] bool

  [[nodiscard]] int64_t length() const { return rows.defined() ? rows.size(1) : 0; }
};
// The one behind the other.
[[nodiscard]] Past joined(const Past& before, const Past& after);
// Places `first` to `first + length`.
[[nodiscard]] Past part(const Past& of, int64_t first, int64_t length);

// Its memory of so many rows in the State under `name` ("layer3/memory") and name + "_valid".
void init_past(const std::string& name, int64_t batch, int64_t length, const at::Tensor& like, State& state);
// What the batch before left there; undefined rows where nobody keeps any.
[[nodiscard]] Past found_past(const std::string& name, const Carry& carry);
void leave_past(const std::string& name, const Past& past, Carry& carry);

class RelativeMixer : public SequenceMixer {
 public:
  RelativeMixer(const RelativeOptions& options, const BuildContext& context);

 protected:
  struct Attended {
    at::Tensor out;      // [b,n,m]
    at::Tensor q, k, v;  // [b,h,n,d] and [b,h,p+n,d]
    at::Tensor weights;  // [b,h,n,p+n], nothing dropped
  };
  // x [b,n,m] behind `past`. A row reads keys at most `farthest` - 1 steps back; 0: all of them.
  [[nodiscard]] Attended attend(const at::Tensor& x, const Past& past, const SequenceMask& mask, int64_t farthest,
                                Carry& carry) const;
  // Of n rows behind p.
  [[nodiscard]] Cost attend_cost(int64_t batch, int64_t n, int64_t p, int64_t farthest) const;
  // The segment as a Past.
  [[nodiscard]] static Past rows_of(const at::Tensor& x, const SequenceMask& mask);
  // [b,n,h d] -> [b,h,n,d].
  [[nodiscard]] at::Tensor split(const at::Tensor& rows) const {
    return rows.unflatten(-1, {heads_, head_dim_}).transpose(1, 2);
  }

  const int64_t model_dim_, heads_, head_dim_;
  const bool causal_;
  const std::string layer_;  // "layer3/", before the names of what is remembered
  std::shared_ptr<Linear> query_, key_, value_, out_;

 private:
  // Distances that have a column for n rows behind p: n + p - 1 steps back down to so many ahead. One is to spare when
  // causal, so that rows of products begin one place earlier each (attend).
  [[nodiscard]] int64_t ahead(int64_t n) const { return causal_ ? 1 : std::max<int64_t>(n - 1, 1); }
  [[nodiscard]] at::Tensor distances(int64_t n, int64_t p) const;  // R [n + p + ahead, m]
  [[nodiscard]] at::Tensor encoded_distances(int64_t n, int64_t p, const at::TensorOptions& numbers) const;
  // bool [n,p+n]: keys that no row at its place may read; undefined: none.
  [[nodiscard]] at::Tensor out_of_reach(int64_t n, int64_t p, int64_t farthest) const;
  // bool that broadcasts to [b,h,n,p+n]: keys that a row must not read; undefined: none.
  [[nodiscard]] at::Tensor hidden(int64_t n, const Past& past, const SequenceMask& mask, int64_t farthest) const;

  const int64_t clamp_;
  kernels::Dropout dropout_;
  std::shared_ptr<Linear> position_;         // W_r
  at::Tensor content_bias_, position_bias_;  // u, w [h,d]
  IndexTables tables_;
};

// Of every parameter.
[[nodiscard]] std::vector<TensorMeaning> relative_meanings();

}  // namespace xformer::attention
