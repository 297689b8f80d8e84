// Attention over listed keys on the CPU: a row at a time, its keys and values read where they lie, or, of bf16, where a
// head's were widened to.
#include "kernels/listed_attention/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"
#include "kernels/cpu/heads.h"
#include "kernels/cpu/stored.h"
#include "kernels/cpu/units.h"
#include "kernels/cpu/valid_rows.h"
#include "kernels/listed_attention/listed_rows.h"
#include "tensor/op_counter.h"

namespace xformer::kernels {

namespace {

constexpr int64_t kListedRows = 64;  // of a unit of work
constexpr int64_t kWorthAll = 16;    // keys for each in a list, from which on draws are made of those alone
constexpr int64_t kFetchedAhead = 8;

// Of rows that are worked on together, each with room for its list up to a multiple of kListedLanes.
template <class Value>
struct ListedScratch {
  std::vector<Value> scores, slopes;
  std::vector<Value> k, v, dk, dv;           // of a head
  std::vector<Value> query, out, slope, dq;  // rows on their way from or to where they are stored
  int64_t head = -1;                         // b h + h, of k and v forwards
  std::vector<int64_t> places;
  std::vector<uint16_t> draws, listed_draws;
  const uint16_t* drawn = nullptr;  // of the first row

  [[nodiscard]] const uint16_t* draws_of(int64_t element) const { return drawn == nullptr ? nullptr : drawn + element; }
};

// A head's rows side by side in `room`: where other heads' lie between them, they have but a part of a cache.
template <class Stored, class Value = Computed<Stored>>
ListedTable<const Value> side_by_side(const Stored* from, int64_t stride, int64_t rows, int64_t width,
                                      std::vector<Value>& room) {
  Value* const to = grown(room, rows * width);
  take_rows(from, stride, rows, width, to);
  return {to, width, width};
}

// The same where they lie, if they can be computed with there; `known`: what is in `room` already is this head's.
template <class Stored, class Value = Computed<Stored>>
ListedTable<const Value> as_they_lie(const Stored* from, int64_t stride, int64_t rows, int64_t width, bool known,
                                     std::vector<Value>& room) {
  if (kConverts<Stored> && known) return {room.data(), width, width};
  const TileRows<const Value> loaded = loaded_rows(from, stride, rows, width, room);
  return {loaded.data, loaded.stride, width};
}

template <class Value>
ListedTable<Value> zeros(int64_t rows, int64_t width, std::vector<Value>& room) {
  std::fill_n(grown(room, rows * width), rows * width, Value(0));
  return {room.data(), width, width};
}

// What both passes share: sizes, and the keys of a row.
struct ListedPass {
  ListedPass(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias,
             const ListedAttentionOptions& options)
      : b(q.size(0)),
        h(q.size(1)),
        n(q.size(2)),
        m(k.size(2)),
        d(q.size(3)),
        e(v.size(3)),
        length(options.places.size(3)),
        room((length + kListedLanes - 1) / kListedLanes * kListedLanes),
        scale(1 / std::sqrt(static_cast<double>(d))),
        places(options.places.contiguous().expand({b, h, -1, -1})),
        lists(options.lists.defined() ? options.lists.contiguous() : options.lists),
        bias(bias.defined() ? bias.contiguous() : bias),
        keys(options.key_valid, m),
        rows(options.row_valid, n),
        by_key(options.drops_by_key),
        draws(options.dropout, at::empty({1}, at::kByte).expand({b, h, n, by_key ? m : length})) {
    XF_ASSERT(options.places.scalar_type() == at::kLong && (lists.defined() || places.size(2) == n),
              "listed attention takes int64 places [b,h,c,L], and c = {} lists without a list of each row; got {}", n,
              places.size(2));
    XF_ASSERT(m > 0, "listed attention takes one key, at least");
    XF_ASSERT(!bias.defined() || bias.sizes() == at::IntArrayRef({b, h, n, length}),
              "listed attention takes a bias of each place [b,h,n,L]");
  }

  [[nodiscard]] int64_t place(int64_t sample, int64_t head, int64_t row) const { return (sample * h + head) * n + row; }

  // Places and draws of rows first .. end - 1, the places of those that are valid: -1 where there is no key that
  // counts. Returns how many places these have, whether or not their keys count.
  template <class Value>
  int64_t begin(int64_t sample, int64_t head, int64_t first, int64_t end, ListedScratch<Value>& mine) const {
    mine.scores.resize(static_cast<size_t>(room));
    mine.slopes.resize(static_cast<size_t>(room));
    mine.places.resize(static_cast<size_t>((end - first) * length));
    const int64_t* const all = places.const_data_ptr<int64_t>() + sample * places.stride(0) + head * places.stride(1);
    const int64_t* const own = lists.defined() ? lists.const_data_ptr<int64_t>() + place(sample, head, first) : nullptr;
    const bool* const valid = keys.defined() ? keys.flags(sample) : nullptr;
    int64_t* to = mine.places.data();
    int64_t there = 0;
    for (int64_t row = first; row < end; ++row, to += length) {
      if (!rows.at(sample, row)) continue;
      const int64_t* const from = all + (own == nullptr ? row : own[row - first]) * places.stride(2);
      for (int64_t l = 0; l < length; ++l) {
        there += from[l] >= 0;
        to[l] = from[l] >= 0 && (valid == nullptr || valid[from[l]]) ? from[l] : -1;
      }
    }
    mine.drawn = draw(sample, head, first, end, mine);
    return there;
  }

  // Of rows first .. end - 1, behind each other. A row's last step goes over draws that are the next row's, of weights
  // that are zero.
  template <class Value>
  const uint16_t* draw(int64_t sample, int64_t head, int64_t first, int64_t end, ListedScratch<Value>& mine) const {
    const int64_t count = (end - first) * length + kListedLanes, begin = place(sample, head, first);
    if (!by_key || draws.threshold() == 0) return draws.draw(begin * length, count, mine.draws);
    uint16_t* const listed = grown(mine.listed_draws, count);
    for (int64_t row = first; row < end; ++row) {
      if (!rows.at(sample, row)) continue;
      const int64_t at = (row - first) * length, of_row = (begin + row - first) * m;
      const int64_t* const own = mine.places.data() + at;
      if (length * kWorthAll < m) {
        draws.draw_chosen(of_row, own, length, listed + at);
        continue;
      }
      const uint16_t* const of_keys = draws.draw(of_row, m, mine.draws);
      for (int64_t l = 0; l < length; ++l) listed[at + l] = of_keys[std::max<int64_t>(0, own[l])];
    }
    return listed;
  }

  // Asks for the keys and values of a row that is worked on kFetchedAhead rows from now: where lists lead, the
  // processor does not foresee.
  template <class Value>
  [[gnu::always_inline]] void fetch_ahead(int64_t sample, int64_t row, int64_t first, int64_t end,
                                          const ListedTable<const Value>& k, const ListedTable<const Value>& v,
                                          const ListedScratch<Value>& mine) const {
    row += kFetchedAhead;
    if (row >= end || !rows.at(sample, row)) return;
    const int64_t* const places = mine.places.data() + (row - first) * length;
    for (int64_t l = 0; l < length; ++l) {
      if (places[l] < 0) continue;
      fetch_row(k.row(places[l]), d);
      fetch_row(v.row(places[l]), e);
    }
  }

  // A row of those that `mine` was begun with at `first`.
  template <class Value>
  [[nodiscard]] ListedRow<Value> listed(int64_t sample, int64_t head, int64_t row, int64_t first, const Value* query,
                                        const ListedTable<const Value>& k, const ListedTable<const Value>& v,
                                        const ListedScratch<Value>& mine) const {
    const int64_t element = (row - first) * length;
    return {query,
            k,
            v,
            mine.places.data() + element,
            length,
            bias.defined() ? bias.const_data_ptr<Value>() + place(sample, head, row) * length : nullptr,
            static_cast<Value>(scale),
            mine.draws_of(element),
            draws.threshold(),
            static_cast<Value>(draws.keep())};
  }

  int64_t b, h, n, m, d, e, length, room;
  double scale;
  at::Tensor places, lists, bias;
  ValidRows keys, rows;
  bool by_key;
  ElementDraws draws;
};

}  // namespace

ListedAttentionForward listed_attention_forward_cpu(const at::Tensor& q_in, const at::Tensor& k_in,
                                                    const at::Tensor& v_in, const at::Tensor& bias,
                                                    const ListedAttentionOptions& options) {
  const at::Tensor q = with_rows(q_in), k = with_rows(k_in), v = with_rows(v_in);
  const ListedPass pass(q, k, v, bias, options);
  ListedAttentionForward result{new_heads(q, pass.n, pass.e), at::empty({pass.b, pass.h, pass.n}, computed_options(q))};
  const int64_t tiles = (pass.n + kListedRows - 1) / kListedRows, units = pass.b * pass.h * tiles;
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "listed_attention", [&] {
    using Value = Computed<scalar_t>;
    std::vector<ListedScratch<Value>> scratch(static_cast<size_t>(workers_for(units)));
    const auto queries = reading<scalar_t>(q), keys = reading<scalar_t>(k), values = reading<scalar_t>(v);
    const auto out = writing<scalar_t>(result.out);
    auto* const log_sums = result.log_sum.mutable_data_ptr<Value>();
    for_units(units, kListedRows * pass.length * (pass.d + pass.e), [&](int64_t unit, int64_t worker) {
      auto& mine = scratch[static_cast<size_t>(worker)];
      const int64_t z = unit / tiles, sample = z / pass.h, head = z % pass.h, first = unit % tiles * kListedRows;
      const int64_t end = std::min(first + kListedRows, pass.n);
      const int64_t there = pass.begin(sample, head, first, end, mine);
      const bool known = std::exchange(mine.head, z) == z;
      const auto k_rows = as_they_lie(keys.at(sample, head), keys.stride, pass.m, pass.d, known, mine.k),
                 v_rows = as_they_lie(values.at(sample, head), values.stride, pass.m, pass.e, known, mine.v);
      const TileRows<const Value> rows =
          loaded_rows(queries.at(sample, head, first), queries.stride, end - first, pass.d, mine.query);
      scalar_t* const stored = out.at(sample, head, first);
      const TileRows<Value> into = rows_for(stored, out.stride, end - first, pass.e, mine.out);
      for (int64_t row = first; row < end; ++row) {
        Value* const to = into.data + (row - first) * into.stride;
        Value& log_sum = log_sums[pass.place(sample, head, row)];
        pass.fetch_ahead(sample, row, first, end, k_rows, v_rows, mine);
        if (pass.rows.at(sample, row)) {
          const Value* const query = rows.data + (row - first) * rows.stride;
          fetch_row_ahead(query, rows.stride, pass.d);
          log_sum =
              listed_row(pass.listed(sample, head, row, first, query, k_rows, v_rows, mine), mine.scores.data(), to);
        } else {
          std::fill_n(to, pass.e, Value(0));
          log_sum = std::numeric_limits<Value>::infinity();
        }
      }
      store_rows(into, end - first, pass.e, stored, out.stride);
      add_executed_flops(2 * there * (pass.d + pass.e));
      // What the lists' rows take where they are read, which is not where they are stored if they were widened.
      add_gathered_bytes(there * (pass.d + pass.e) * static_cast<int64_t>(sizeof(Value)));
    });
  });
  return result;
}

ListedAttentionGradients listed_attention_backward_cpu(const at::Tensor& gradient_in, const at::Tensor& q_in,
                                                       const at::Tensor& k_in, const at::Tensor& v_in,
                                                       const at::Tensor& bias, const ListedAttentionForward& forward,
                                                       const ListedAttentionOptions& options) {
  const at::Tensor q = with_rows(q_in), k = with_rows(k_in), v = with_rows(v_in);
  const at::Tensor gradient = with_rows(gradient_in), made = with_rows(forward.out);
  const ListedPass pass(q, k, v, bias, options);
  const ListedAttentionGradients result{new_heads(q, pass.n, pass.d), new_heads(k, pass.m, pass.d),
                                        new_heads(v, pass.m, pass.e),
                                        bias.defined() ? at::zeros(bias.sizes(), bias.options()) : at::Tensor()};
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, q.scalar_type(), "listed_attention_backward", [&] {
    using Value = Computed<scalar_t>;
    std::vector<ListedScratch<Value>> scratch(static_cast<size_t>(workers_for(pass.b * pass.h)));
    const auto queries = reading<scalar_t>(q), keys = reading<scalar_t>(k), values = reading<scalar_t>(v);
    const auto given = reading<scalar_t>(gradient), out = reading<scalar_t>(made);
    const auto dq = writing<scalar_t>(result.q), dk = writing<scalar_t>(result.k), dv = writing<scalar_t>(result.v);
    Value* const dbias = result.bias.defined() ? result.bias.mutable_data_ptr<Value>() : nullptr;
    const auto* const log_sums = forward.log_sum.const_data_ptr<Value>();
    // Rows share keys: a head's are added up by one thread, row after row.
    for_units(pass.b * pass.h, 3 * pass.n * pass.length * (pass.d + pass.e), [&](int64_t z, int64_t worker) {
      auto& mine = scratch[static_cast<size_t>(worker)];
      const int64_t sample = z / pass.h, head = z % pass.h;
      const auto k_rows = side_by_side(keys.at(sample, head), keys.stride, pass.m, pass.d, mine.k),
                 v_rows = side_by_side(values.at(sample, head), values.stride, pass.m, pass.e, mine.v);
      const auto dk_rows = zeros(pass.m, pass.d, mine.dk), dv_rows = zeros(pass.m, pass.e, mine.dv);
      int64_t there = 0;
      for (int64_t first = 0; first < pass.n; first += kListedRows) {
        const int64_t end = std::min(first + kListedRows, pass.n), count = end - first;
        there += pass.begin(sample, head, first, end, mine);
        const auto q_tile = loaded_rows(queries.at(sample, head, first), queries.stride, count, pass.d, mine.query),
                   out_tile = loaded_rows(out.at(sample, head, first), out.stride, count, pass.e, mine.out),
                   given_tile = loaded_rows(given.at(sample, head, first), given.stride, count, pass.e, mine.slope);
        const TileRows<Value> dq_tile = rows_for(dq.at(sample, head, first), dq.stride, count, pass.d, mine.dq);
        for (int64_t row = first; row < end; ++row) {
          const int64_t r = row - first;
          Value* const to_q = dq_tile.data + r * dq_tile.stride;
          fetch_row_ahead(q_tile.data + r * q_tile.stride, q_tile.stride, pass.d);
          fetch_row_ahead(out_tile.data + r * out_tile.stride, out_tile.stride, pass.e);
          fetch_row_ahead(given_tile.data + r * given_tile.stride, given_tile.stride, pass.e);
          const Value log_sum = log_sums[pass.place(sample, head, row)];
          if (log_sum == std::numeric_limits<Value>::infinity()) {
            std::fill_n(to_q, pass.d, Value(0));
            continue;
          }
          const ListedGradients<Value> gradients{
              out_tile.data + r * out_tile.stride,
              given_tile.data + r * given_tile.stride,
              to_q,
              dk_rows,
              dv_rows,
              dbias == nullptr ? nullptr : dbias + pass.place(sample, head, row) * pass.length};
          const auto listed =
              pass.listed(sample, head, row, first, q_tile.data + r * q_tile.stride, k_rows, v_rows, mine);
          listed_row_gradients(listed, log_sum, gradients, mine.scores.data(), mine.slopes.data());
        }
        store_rows(dq_tile, count, pass.d, dq.at(sample, head, first), dq.stride);
      }
      for (int64_t i = 0; i < pass.m; ++i) {
        put(dk_rows.row(i), pass.d, dk.at(sample, head, i));
        put(dv_rows.row(i), pass.e, dv.at(sample, head, i));
      }
      add_executed_flops(2 * there * (3 * pass.d + 2 * pass.e));
      // Keys and values, and their gradients, which are read and written, where they are side by side.
      add_gathered_bytes(3 * there * (pass.d + pass.e) * static_cast<int64_t>(sizeof(Value)));
    });
  });
  return result;
}

}  // namespace xformer::kernels
