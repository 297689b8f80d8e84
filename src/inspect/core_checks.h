// Whether an attention core does what models need of one, and what it costs: for who wrote it (`xformer check`).
#pragma once

#include "attention/descriptor.h"
#include "inspect/selftest.h"

namespace xformer::inspect {

struct CoreChecks {
  attention::Resolved attention;
  Json options = Json::object();  // complete
  int64_t heads = 2, head_dim = 32;
  int64_t length = 512;  // of the measurements; the longest has four times as many tokens
};

// Shapes and types; that padding leaks nowhere; that a second pass gives the same bits; gradients of q, k, v and
// parameters by differences, in double; causality where it is claimed. What only costs is told and never fails: growth
// of memory, time of a training step beside softmax-fused's, whether appended padding changes anything. UserError for
// an attention that owns its projections.
void check_core(const CoreChecks& what, const at::Device& device, const SelftestListener& tell);

}  // namespace xformer::inspect
