#include "residency/random_blocks.h"

#include <cstring>
#include <vector>

#include "base/rng.h"
#include "base/thread_pool.h"

namespace snug::residency {

void fill_random_blocks(quant::Format format, float mean, float deviation, std::uint64_t seed,
                        std::int64_t bytes, std::byte* out, const Stream& stream) {
  const auto& f = quant::info(format);
  // A pool entry is one block, or 32 values of a plain format.
  const std::int64_t entry_elems = f.block_elems > 1 ? f.block_elems : 32;
  const std::int64_t entry_bytes = entry_elems / f.block_elems * f.block_bytes;
  constexpr std::int64_t kEntries = 1024;
  std::vector<float> values(static_cast<std::size_t>(kEntries * entry_elems));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = mean + deviation * random_normal(seed, 0, i);
  std::vector<std::byte> pool(static_cast<std::size_t>(kEntries * entry_bytes));
  f.encode(values.data(), pool.data(), kEntries * entry_elems);

  const std::int64_t entries = (bytes + entry_bytes - 1) / entry_bytes;
  stream.pool->parallel_for(entries, 65536, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto pick =
          static_cast<std::int64_t>(random_bits(seed, 1, static_cast<std::uint64_t>(i)) % kEntries);
      const std::int64_t size = std::min(entry_bytes, bytes - i * entry_bytes);
      std::memcpy(out + i * entry_bytes, pool.data() + pick * entry_bytes, static_cast<std::size_t>(size));
    }
  });
}

}  // namespace snug::residency
