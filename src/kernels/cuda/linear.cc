// Products of many tokens, through cuBLASLt.
#include "kernels/linear.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/cuda/blas.h"
#include "core/gpu.h"

namespace snug::kernels::cuda {
namespace {

using quant::Format;

// Rows of a packed weight that are unpacked at a time: enough to keep the products efficient.
constexpr std::int64_t kUnpackBytes = 64ll << 20;

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error("cuBLASLt: " + std::string(what) + ": error " + std::to_string(status));
  }
}

struct Product {
  const void* w = nullptr;  // (rows, cols) bf16
  std::int64_t rows = 0, cols = 0;
  const void* x = nullptr;  // (tokens, cols) bf16
  std::int64_t x_stride = 0, tokens = 0;
  Values y;  // (tokens, rows)
  std::int64_t y_stride = 0;
  bool add = false;
};

// The number of tokens that a product of `tokens` takes its kernel of: the choice takes the host a while, and
// the driver loads every kernel it has not met yet.
std::int64_t counted(std::int64_t tokens) {
  const std::int64_t step = tokens <= 8 ? 1 : tokens <= 64 ? 8 : tokens <= 512 ? 64 : 256;
  return (tokens + step - 1) / step * step;
}

struct Layouts {
  cublasLtMatmulDescOpaque_t desc = {};
  cublasLtMatrixLayoutOpaque_t w = {}, x = {}, y = {};
};

// Column-major for the library: yᵀ (rows x tokens) = W (as the transpose of cols x rows) · xᵀ (cols x
// tokens).
Layouts layouts_of(const Blas& blas, const Product& p, std::int64_t tokens) {
  Layouts all;
  check(blas.desc_init(&all.desc, sizeof(all.desc), CUBLAS_COMPUTE_32F, CUDA_R_32F), "description");
  const cublasOperation_t transpose = CUBLAS_OP_T;
  check(blas.desc_set(&all.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof(transpose)), "description");
  const auto layout = [&](cublasLtMatrixLayoutOpaque_t& l, cudaDataType_t type, std::int64_t rows,
                          std::int64_t cols, std::int64_t stride) {
    check(blas.layout_init(&l, sizeof(l), type, static_cast<std::uint64_t>(rows),
                           static_cast<std::uint64_t>(cols), stride),
          "layout");
  };
  layout(all.w, CUDA_R_16BF, p.cols, p.rows, p.cols);
  layout(all.x, CUDA_R_16BF, p.cols, tokens, p.x_stride);
  layout(all.y, p.y.dtype == DType::f32 ? CUDA_R_32F : CUDA_R_16BF, p.rows, tokens, p.y_stride);
  return all;
}

std::uint64_t workspace_of(const Blas& blas) {
  return blas.workspace != nullptr ? kBlasWorkspace : 0;
}

// The library's choice for as many tokens as are counted. Strides do not enter: they are multiples of eight.
const cublasLtMatmulAlgo_t& kernel_for(Blas& blas, const Product& p) {
  const std::int64_t tokens = counted(p.tokens);
  const auto [found, is_new] =
      blas.chosen.try_emplace({p.rows, p.cols, tokens, static_cast<std::int64_t>(p.y.dtype), p.add ? 1 : 0});
  if (!is_new) return found->second;
  Layouts all = layouts_of(blas, p, tokens);
  cublasLtMatmulPreferenceOpaque_t preference = {};
  check(blas.preference_init(&preference, sizeof(preference)), "preference");
  const std::uint64_t workspace = workspace_of(blas);
  check(blas.preference_set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                            sizeof(workspace)),
        "preference");
  cublasLtMatmulHeuristicResult_t best = {};
  int count = 0;
  const cublasStatus_t status =
      blas.heuristic(blas.handle, &all.desc, &all.w, &all.x, &all.y, &all.y, &preference, 1, &best, &count);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0) {
    blas.chosen.erase(found);
    check(status, "choice of a kernel");
    throw std::runtime_error("cuBLASLt has no kernel for this product");
  }
  return found->second = best.algo;
}

void multiply(const Stream& stream, const Product& p) {
  Blas& blas = *static_cast<Blas*>(stream.gpu->blas);
  const cublasLtMatmulAlgo_t& kernel = kernel_for(blas, p);
  Layouts all = layouts_of(blas, p, p.tokens);
  const float one = 1, beta = p.add ? 1.0f : 0.0f;
  check(blas.matmul(blas.handle, &all.desc, &one, p.w, &all.w, p.x, &all.x, &beta, p.y.data, &all.y, p.y.data,
                    &all.y, &kernel, blas.workspace, workspace_of(blas),
                    static_cast<cudaStream_t>(stream.gpu->stream)),
        "product");
}

bool is_next(const LinearOutput& a, const LinearOutput& b) {
  const WeightView &u = a.weight, &w = b.weight;
  return u.format == Format::bf16 && w.format == Format::bf16 && u.layout == Layout::rows &&
         w.layout == Layout::rows && u.data + u.rows * u.cols * 2 == w.data && a.y.dtype == b.y.dtype &&
         a.y.at(u.rows).data == b.y.data && a.y_stride == b.y_stride && a.add == b.add;
}

void multiply_packed(const LinearParams& p, const LinearOutput& out, Product product) {
  const WeightView& w = out.weight;
  const std::int64_t fitting = p.workspace_bytes / (w.cols * 2) / 16 * 16;
  if (p.workspace == nullptr || fitting <= 0) throw std::runtime_error("linear: the workspace is too small");
  for (std::int64_t begin = 0; begin < w.rows; begin += fitting) {
    const std::int64_t end = std::min(begin + fitting, w.rows);
    unpack_rows(p.stream, w, begin, end, p.workspace);
    product.w = p.workspace;
    product.rows = end - begin;
    product.y = out.y.at(begin);
    multiply(p.stream, product);
  }
}

}  // namespace

std::int64_t linear_workspace_bytes(std::int64_t max_cols) {
  return std::max(kUnpackBytes, max_cols * 2 * 256);
}

std::vector<std::int64_t> linear_token_counts(std::int64_t most) {
  std::vector<std::int64_t> counts;
  for (std::int64_t tokens = 1; tokens <= most; tokens = counts.back() + 1) {
    counts.push_back(std::min(counted(tokens), most));
  }
  return counts;
}

void linear(const LinearParams& p) {
  if (p.tokens == 0) return;
  for (std::size_t i = 0; i < p.outputs.size(); ++i) {
    const LinearOutput& out = p.outputs[i];
    const WeightView& w = out.weight;
    const bool plain = w.layout == Layout::rows && w.format == Format::bf16;
    if (out.bias != nullptr || p.x.dtype != DType::bf16 || (!plain && w.layout == Layout::rows)) {
      LinearParams one = p;
      one.outputs = {&out, 1};
      simple_linear(one);
      continue;
    }
    Product product{w.data, w.rows, w.cols, p.x.data, p.x_stride, p.tokens, out.y, out.y_stride, out.add};
    if (!plain) {
      multiply_packed(p, out, product);
      continue;
    }
    while (i + 1 < p.outputs.size() && is_next(p.outputs[i], p.outputs[i + 1])) {
      product.rows += p.outputs[++i].weight.rows;
    }
    multiply(p.stream, product);
  }
}

}  // namespace snug::kernels::cuda
