// The checks of ops/. What the kernels compute is tested in unit/kernels.
#include "ops/ops.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/thread_pool.h"

namespace snug::ops {
namespace {

void expect_refused(const std::function<void()>& call, const std::string& words) {
  try {
    call();
    ADD_FAILURE() << "was accepted; expected: " << words;
  } catch (const std::logic_error& e) {
    EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
  }
}

class Ops : public testing::TestWithParam<Backend> {
 protected:
  kernels::WeightView matrix(std::int64_t rows, std::int64_t cols) const {
    return {quant::Format::f32, kernels::Layout::rows, rows, cols,
            reinterpret_cast<const std::byte*>(numbers_.data())};
  }
  ThreadPool pool_{1};
  Stream stream_{GetParam(), &pool_};
  std::vector<float> numbers_ = [] {
    std::vector<float> n(64 * 64);
    for (std::size_t i = 0; i < n.size(); ++i) n[i] = static_cast<float>(i);
    return n;
  }();
  std::vector<float> out_ = std::vector<float>(64 * 64);
  std::vector<std::byte> scratch_ = std::vector<std::byte>(1 << 20);
};

TEST_P(Ops, EmbeddingTakesOnlyIdsInTheTable) {
  std::vector<std::int32_t> ids = {3, 0};
  embedding({stream_, matrix(4, 32), ids.data(), 2, out_.data()});
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(out_[static_cast<std::size_t>(i)], static_cast<float>(3 * 32 + i));
    EXPECT_EQ(out_[static_cast<std::size_t>(32 + i)], static_cast<float>(i));
  }
  for (const std::int32_t bad : {4, -1, INT32_MAX}) {
    ids[1] = bad;
    expect_refused([&] { embedding({stream_, matrix(4, 32), ids.data(), 2, out_.data()}); }, "embedding");
  }
}

TEST_P(Ops, LinearChecksWidths) {
  const auto run = [&](std::int64_t x_stride, const std::vector<kernels::LinearOutput>& outputs) {
    linear({.stream = stream_,
            .x = numbers_.data(),
            .x_stride = x_stride,
            .tokens = 1,
            .outputs = outputs,
            .precision = kernels::Precision::exact,
            .workspace = scratch_.data(),
            .workspace_bytes = static_cast<std::int64_t>(scratch_.size())});
  };
  expect_refused([&] { run(32, {}); }, "no outputs");
  expect_refused([&] { run(31, {{matrix(8, 32), nullptr, out_.data(), 8}}); }, "narrower than the weight");
  expect_refused([&] { run(32, {{matrix(8, 32), nullptr, out_.data(), 7}}); }, "y is narrower");
  expect_refused(
      [&] {
        run(32, {{matrix(8, 32), nullptr, out_.data(), 8}, {matrix(8, 16), nullptr, out_.data() + 8, 8}});
      },
      "differ");
  auto empty = matrix(8, 32);
  empty.data = nullptr;
  expect_refused([&] { run(32, {{empty, nullptr, out_.data(), 8}}); }, "linear");
}

TEST_P(Ops, AttentionAndRopeCheckHeadsAndSequences) {
  const std::int32_t page = 0, position = 0;
  std::vector<float> k(32 * 16), v(32 * 16), q(64), x(64);
  const kv::PagedLayer kv{k.data(), v.data(), DType::f32, 32, 2, 16};
  const std::vector<kv::SequenceView> good = {{&page, 0, 1, 1}};
  const auto attend = [&](int heads, kv::PagedLayer pages, const std::vector<kv::SequenceView>& sequences) {
    attention({.stream = stream_,
               .q = q.data(),
               .out = out_.data(),
               .heads = heads,
               .scale = 0.25f,
               .kv = pages,
               .sequences = sequences,
               .workspace = scratch_.data(),
               .workspace_bytes = static_cast<std::int64_t>(scratch_.size())});
  };
  const auto rotate = [&](kv::PagedLayer pages, const std::vector<kv::SequenceView>& sequences) {
    rope_store({.stream = stream_,
                .q = q.data(),
                .k = x.data(),
                .v = x.data(),
                .cos_sin = numbers_.data(),
                .positions = &position,
                .tokens = 1,
                .heads = 4,
                .kv = pages,
                .sequences = sequences});
  };
  expect_refused([&] { attend(3, kv, good); }, "multiple of kv_heads");
  kv::PagedLayer no_heads = kv;
  no_heads.kv_heads = 0;
  expect_refused([&] { attend(4, no_heads, good); }, "multiple of kv_heads");
  kv::PagedLayer no_pages = kv;
  no_pages.v = nullptr;
  expect_refused([&] { attend(4, no_pages, good); }, "pages");
  expect_refused([&] { rotate(no_pages, good); }, "pages");
  kv::PagedLayer odd = kv;
  odd.head_dim = 15;
  expect_refused([&] { rotate(odd, good); }, "even");
  for (const kv::SequenceView& bad :
       {kv::SequenceView{&page, 0, 2, 1}, {&page, 0, 0, 1}, {&page, -1, 1, 1}, {nullptr, 0, 1, 1}}) {
    expect_refused([&] { attend(4, kv, {bad}); }, "a sequence");
    expect_refused([&] { rotate(kv, {bad}); }, "a sequence");
  }
}

TEST_P(Ops, ElementwiseChecksSizes) {
  expect_refused(
      [&] {
        rms_norm({stream_, numbers_.data(), numbers_.data(), out_.data(), 1, 0, 1e-6f});
      },
      "rms_norm");
  expect_refused(
      [&] {
        rms_norm({stream_, numbers_.data(), numbers_.data(), out_.data(), 1, 32, 0});
      },
      "rms_norm");
  expect_refused(
      [&] {
        swiglu({stream_, numbers_.data(), numbers_.data(), out_.data(), 1, 32, 31, 32});
      },
      "swiglu");
  expect_refused(
      [&] {
        swiglu({stream_, numbers_.data(), numbers_.data(), out_.data(), 1, 32, 32, 31});
      },
      "swiglu");
}

INSTANTIATE_TEST_SUITE_P(Backends, Ops, testing::Values(Backend::ref, Backend::cpu),
                         [](const auto& backend) { return backend.param == Backend::ref ? "ref" : "cpu"; });

}  // namespace
}  // namespace snug::ops
