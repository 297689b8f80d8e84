// Loops over codes of up to kCodeBits bits: by a processor's own counting of bits where it has that for eight numbers
// at once (AVX-512 VPOPCNTDQ), else as the compiler vectorises them.
#pragma once

#include <cstdint>

namespace xformer::kernels {

inline constexpr int64_t kCodeBits = 64, kCodeLanes = 32;

// nearest[i] = the centroid at the least Hamming distance from codes[i], the first of equally near ones. Both have room
// up to a multiple of kCodeLanes. Fewer than 2^32 centroids.
void nearest_codes(const uint64_t* codes, int64_t count, const uint64_t* centroids, int64_t clusters, int64_t* nearest);
// members[c] += the codes of cluster c; ones[c][bit] += those of them whose bit is set (kCodeBits numbers a cluster).
void count_ones(const uint64_t* codes, const int64_t* clusters, int64_t count, int32_t* ones, int64_t* members);

// The same for processors without.
void nearest_codes_plainly(const uint64_t* codes, int64_t count, const uint64_t* centroids, int64_t clusters,
                           int64_t* nearest);
void count_ones_plainly(const uint64_t* codes, const int64_t* clusters, int64_t count, int32_t* ones, int64_t* members);

}  // namespace xformer::kernels
